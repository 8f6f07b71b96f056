"""Asks the owner of a cursor to continue in a new ledger, in the target of a switch.

PIP-477 has a REST call for that, which no Pulsar implements yet. This endpoint replaces it, and only the reference
agent serves it: `POST /headgate/v1/cursors/rollover` with `{"topic": …, "cursor": …, "target": "new", "epoch": 3}`
answers 200 `{"ledger_id": 7}`, 404 `{"reason": "not_owned", "detail": …}` if the topic is not loaded there, and 409
`{"detail": …}` if it cannot be done.
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import msgspec
import structlog

from connectors.foreign_json import UnreadableJsonError, read_json
from connectors.http.server import HttpServer
from connectors.pulsar.connection import BearerAuth, MemberUrl, PulsarAdmin, is_member, plain_client, url_of_member
from connectors.pulsar.outcomes import detail_of as http_detail_of
from connectors.switching.topic_owner import Cursor, find_topic_owner, parse_cursor
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.tree import Reader
from policies.errors import UserError
from policies.sessions.readings import BROKERS
from policies.units import MAX_INT64

PATH = "/headgate/v1/cursors/rollover"

_NOT_OWNED = "not_owned"
_MAX_BODY_BYTES = 65_536
_REQUEST_SECONDS = 10.0
_DETAIL_LENGTH = 200

_log = structlog.get_logger(__name__)


class NotOwnedError(Exception):
    """The topic is not loaded here."""


class RolloverRefusedError(Exception):
    """The cursor is not rolled over. The message has the reason in one short line."""


class RolloverRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to continue a cursor in a new ledger of a cluster."""

    topic: Annotated[str, msgspec.Meta(min_length=1)]
    """The full name: `persistent://tenant/namespace/topic`."""
    cursor: Annotated[str, msgspec.Meta(min_length=1)]
    """The subscription's name."""
    target: Annotated[str, msgspec.Meta(min_length=1)]
    epoch: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]
    """The epoch of the directive with this target."""


class _Done(msgspec.Struct, frozen=True, kw_only=True):
    ledger_id: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    detail: str
    reason: str = ""


# --- at the broker


class RolloverServer(HttpServer):
    """The endpoint. It has no authentication and no encryption: only the executor may reach it.

    Args:
        roll_over: rolls a cursor over and returns the new ledger's id; raises NotOwnedError or RolloverRefusedError.
            Called from many threads.
        port: 0 for any free port, which the attribute `port` then holds.

    Raises:
        UserError: it cannot listen there.
    """

    def __init__(self, roll_over: Callable[[RolloverRequest], int], host: str = "127.0.0.1", port: int = 0) -> None:
        handler = type("Handler", (_Handler,), {"roll_over": staticmethod(roll_over)})
        super().__init__(handler, host, port, name="rollover", setting="rollover")


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    roll_over: Callable[[RolloverRequest], int]

    def do_POST(self) -> None:
        """Roll a cursor over."""
        status, answer = self._respond()
        body = msgspec.json.encode(answer)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _respond(self) -> tuple[HTTPStatus, _Done | _Refusal]:
        if urlsplit(self.path).path != PATH:
            return HTTPStatus.NOT_FOUND, _Refusal(detail=f"only {PATH} is served")
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > _MAX_BODY_BYTES:
            return HTTPStatus.BAD_REQUEST, _Refusal(detail=f"a body of at most {_MAX_BODY_BYTES} bytes is needed")
        try:
            request = read_json(self.rfile.read(int(length)), RolloverRequest)
        except UnreadableJsonError as error:
            return HTTPStatus.BAD_REQUEST, _Refusal(detail=f"no request of a rollover: {error}")
        return self._roll_over(request)

    def _roll_over(self, request: RolloverRequest) -> tuple[HTTPStatus, _Done | _Refusal]:
        try:
            return HTTPStatus.OK, _Done(ledger_id=self.roll_over(request))
        except NotOwnedError as error:
            return HTTPStatus.NOT_FOUND, _Refusal(detail=str(error), reason=_NOT_OWNED)
        except RolloverRefusedError as error:
            return HTTPStatus.CONFLICT, _Refusal(detail=str(error))
        except Exception as error:  # the broker's own code
            _log.exception("rolling a cursor over failed", topic=request.topic, cursor=request.cursor)
            return HTTPStatus.INTERNAL_SERVER_ERROR, _Refusal(detail=f"the broker failed: {type(error).__name__}")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Write nothing to the console: the response has the outcome."""


# --- at the executor


@dataclass(frozen=True, slots=True)
class RolledOver:
    """The cursor continues in another ledger."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class TopicNotOwned:
    """No broker has loaded the topic, or not the one that was asked."""

    detail: str


@dataclass(frozen=True, slots=True)
class RolloverFailed:
    """It was not done, or the result is unknown."""

    detail: str


class OwnerClient:
    """Asks the owners of topics. Thread-safe.

    Args:
        session: of the brokers' ZooKeeper, which has the owners.
        owner_url: a broker's endpoint, with `{member}` or `{host}`.
        admin: the credentials, and the `timeout` of a request; its address is not used.
        brokers_path: the znode in which live brokers register; no other host gets a request or the token.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        owner_url: MemberUrl,
        admin: PulsarAdmin,
        transport: httpx.BaseTransport | None = None,
        brokers_path: str = BROKERS,
    ) -> None:
        self._session = session
        self._brokers_path = brokers_path
        self._owner_url = owner_url
        self._admin = admin
        self._transport = transport

    def roll_over(self, path: str, target: str, epoch: int) -> RolledOver | TopicNotOwned | RolloverFailed:
        """Have the broker that has loaded the topic roll over a cursor.

        Args:
            path: of the cursor's znode.
            target: the BookKeeper cluster for its new ledger.
            epoch: of the directive with this target.
        """
        try:
            cursor = parse_cursor(path)
            reader = self._session.reader(lambda: self._session.connection.timeout_seconds)
            member = find_topic_owner(reader, cursor)
            is_registered = member is not None and self._is_registered(reader, member)
        except ValueError as error:
            return RolloverFailed(str(error))
        except (UnreadError, NotConnectedError, UserError) as error:
            return RolloverFailed(detail_of(error))
        if member is None:
            return TopicNotOwned(f"nobody has {cursor.topic} loaded")
        if not is_registered:
            return RolloverFailed(f"the owner of {cursor.topic} is not registered in {self._brokers_path}: not asked")
        return self._ask(member, cursor, target, epoch)

    def _is_registered(self, reader: Reader, member: str) -> bool:
        """Whether a name that some znode holds is that of a broker; anything else is no address for a token."""
        return (
            is_member(member) and reader.read(reader.client.exists_async, f"{self._brokers_path}/{member}") is not None
        )

    def _ask(self, member: str, cursor: Cursor, target: str, epoch: int) -> RolledOver | TopicNotOwned | RolloverFailed:
        request = RolloverRequest(topic=cursor.topic, cursor=cursor.name, target=target, epoch=epoch)
        try:
            # A new client each time, because brokers and certificates change, and there are few such cursors.
            with plain_client(url_of_member(self._owner_url, member), self._admin, self._transport) as client:
                auth = BearerAuth(self._admin.bearer_token)
                return _parse_rollover(member, client.post(PATH, json=msgspec.to_builtins(request), auth=auth))
        except (httpx.HTTPError, httpx.InvalidURL, UserError) as error:
            return RolloverFailed(f"{member}: {http_detail_of(error)}"[:_DETAIL_LENGTH])


def _parse_rollover(member: str, response: httpx.Response) -> RolledOver | TopicNotOwned | RolloverFailed:
    status, prefix = response.status_code, f"{member} answers with status {response.status_code}"
    try:
        if status == HTTPStatus.OK:
            return RolledOver(read_json(response.content, _Done).ledger_id)
        refusal = read_json(response.content, _Refusal)
    except UnreadableJsonError:
        return RolloverFailed(f"{prefix}, but not as one who rolls cursors over: owner_url may be another service's")
    detail = " ".join(f"{prefix}: {refusal.detail}".split())[:_DETAIL_LENGTH]
    # Another service answers 404, too, for an unknown path.
    not_owned = status == HTTPStatus.NOT_FOUND and refusal.reason == _NOT_OWNED
    return TopicNotOwned(detail) if not_owned else RolloverFailed(detail)
