"""The HTTP server of the REST API: parses requests, checks the token, and sends the answers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from connectors.foreign_json import UnreadableJsonError, read_json
from connectors.http.access import has_access
from connectors.http.server import HttpServer
from connectors.switching.settings import SwitchAdminApi

BASE = "/admin/v2/bookie-clusters"

_MAX_BODY_BYTES = 65_536
_REQUEST_SECONDS = 30.0

StatusAndBody = tuple[HTTPStatus, Any]


class BadRequestError(Exception):
    """The request is not valid; the message has the reason."""


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request with its parsed body."""

    method: str
    parts: tuple[str, ...]
    """The segments of the path below the base."""
    body: Mapping[str, Any]
    key: str | None = None
    """The header `Idempotency-Key`."""
    peer: str = ""

    def text(self, name: str) -> str | None:
        """Return a text field of the body or the query."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, str):
            raise BadRequestError(f"{name}: must be a string")
        return value

    def flag(self, name: str, *, otherwise: bool) -> bool:
        """Return a boolean field of the body or the query."""
        value = self.body.get(name, otherwise)
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower())
        if not isinstance(value, bool):
            raise BadRequestError(f"{name}: must be true or false")
        return value


def refuse(why: str) -> dict[str, str]:
    """Return the body of a refusal."""
    return {"reason": why}


class SwitchAdminServer(HttpServer):
    """Serves the API of one broker cluster.

    Args:
        api: the address and the token.
        answer: answers a request.

    Raises:
        UserError: it cannot listen at the address, or its files cannot be used.
    """

    def __init__(self, api: SwitchAdminApi, answer: Callable[[AdminRequest], StatusAndBody]) -> None:
        values = {"answer": staticmethod(answer), "token": api.bearer_token() or ""}
        handler = type("Handler", (_Handler,), values)
        setting = "switching.admin_api.port"
        super().__init__(handler, api.host, api.port, name="switch admin", setting=setting, tls=api.tls())


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    server_version = "headgate"
    sys_version = ""
    answer: Callable[[AdminRequest], StatusAndBody]
    token: str

    def do_GET(self) -> None:
        """Serve a reading."""
        self._serve()

    def do_POST(self) -> None:
        """Serve a command."""
        self._serve()

    def do_DELETE(self) -> None:
        """Serve the removal of a cluster."""
        self._serve()

    def _serve(self) -> None:
        status, answer = self._answer()
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def _answer(self) -> StatusAndBody:
        if not has_access(self.headers.get("Authorization"), self.token):
            return HTTPStatus.UNAUTHORIZED, refuse("a bearer token is needed")
        try:
            return self.answer(self._read_request())
        except BadRequestError as error:
            return HTTPStatus.BAD_REQUEST, refuse(str(error))

    def _read_request(self) -> AdminRequest:
        url = urlsplit(self.path)
        path = url.path.rstrip("/")
        if path != BASE and not path.startswith(f"{BASE}/"):
            raise BadRequestError(f"only {BASE} is served")
        parts = tuple(unquote(part) for part in path[len(BASE) :].split("/") if part)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        return AdminRequest(
            method=self.command,
            parts=parts,
            body={**query, **self._read_body()},
            key=self.headers.get("Idempotency-Key"),
            peer=str(self.client_address[0]),
        )

    def _read_body(self) -> Mapping[str, Any]:
        length = self.headers.get("Content-Length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > _MAX_BODY_BYTES:
            raise BadRequestError(f"the body may have at most {_MAX_BODY_BYTES} bytes")
        data = self.rfile.read(int(length))
        try:
            body: Any = read_json(data, Any) if data.strip() else {}
        except UnreadableJsonError:
            raise BadRequestError("the body is no JSON") from None
        if not isinstance(body, dict):
            raise BadRequestError("the body is no JSON object")
        return body

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Log nothing: the commands topic has every command with its actor."""
