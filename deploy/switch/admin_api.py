"""The REST API of PIP-477 below `/admin/v2/bookie-clusters`, served by the process that carries switches out.

Each request runs the same command as the command line, with the same checks and refusals. It is off unless the settings
enable it, and requires the token. What only a broker can do (`/internal/promote-cursor`, `/read-mode`) answers 501.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import structlog
from rich.console import Console

from connectors.component import Component
from connectors.foreign_json import UnreadableJsonError, read_json
from connectors.http.access import is_let_in
from connectors.http.server import HttpServer
from connectors.switching.cluster_sessions import ClusterSessions
from connectors.switching.registry import Registry, RegistryError
from connectors.switching.settings import SwitchAdminApi, SwitchExecution
from deploy.settings.application import Settings
from deploy.switch.command_runner import CommandConsole, CommandRunner
from deploy.switch.ledger_views import is_to_clean, of_switch, plain_ledger
from deploy.switch.loop_client import CommandOptions, LoopClient
from deploy.switch.precheck_command import check, named, plain_report
from deploy.switch.registration import registration
from policies.errors import UserError
from policies.switching.decisions import RejectCode
from policies.switching.readings import CommandName
from policies.switching.state import ClusterStatus

BASE = "/admin/v2/bookie-clusters"

_MAX_BODY_BYTES = 65_536
_REQUEST_SECONDS = 30.0
_READ_SECONDS = 1.0
_STATUSES = {RejectCode.NOT_FOUND: HTTPStatus.NOT_FOUND, RejectCode.URI_DUPLICATE: HTTPStatus.BAD_REQUEST}
"""Any other refusal is a conflict with what is so now."""

_log = structlog.get_logger(__name__)

StatusAndBody = tuple[HTTPStatus, Any]


class BadRequestError(Exception):
    """What is asked cannot be understood; the message says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, its body parsed."""

    method: str
    parts: tuple[str, ...]
    """Of the path, below the base."""
    body: Mapping[str, Any]
    key: str | None = None
    """Its `Idempotency-Key`."""
    peer: str = ""

    def text(self, name: str) -> str | None:
        """A field of the body, or of the query."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, str):
            raise BadRequestError(f"{name}: a string is needed")
        return value

    def flag(self, name: str, *, otherwise: bool) -> bool:
        """A field that is true or false."""
        value = self.body.get(name, otherwise)
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower())
        if not isinstance(value, bool):
            raise BadRequestError(f"{name}: true or false is needed")
        return value


@dataclass(frozen=True, slots=True)
class _Captured(CommandConsole):
    """Keeps what would be printed, and is asked nothing."""

    answers: list[dict[str, Any]] = field(default_factory=list)

    def print_json(self, plain: dict[str, Any]) -> None:
        self.answers.append(plain)


class SwitchAdmin:
    """What the verbs do, for one broker cluster. Safe to use from many threads: one command is given at a time.

    Args:
        settings: of the whole application.
        cluster: the broker cluster.
        timeout_seconds: how long the loop's answer is awaited.
    """

    def __init__(self, settings: Settings, cluster: str, timeout_seconds: float) -> None:
        self._settings, self._cluster, self._timeout_seconds = settings, cluster, timeout_seconds
        self._one = threading.Lock()
        self._verbs: Mapping[tuple[str, str], Callable[[Asked], StatusAndBody]] = {
            ("POST", "switch"): self._switch,
            ("POST", "rollback"): self._roll_back,
            ("POST", "cleanup"): self._clean_up,
            ("GET", "status"): self._status,
            ("GET", "cleanup-targets"): self._cleanup_targets,
            ("POST", "read-mode"): _not_here,
            **{("POST", name.value): self._plain_command(name) for name in _WITHOUT_ARGUMENTS},
        }

    def answer(self, asked: Asked) -> StatusAndBody:
        """Do what is asked; every failure is an answer."""
        try:
            with self._one:
                return self._answer(asked)
        except BadRequestError as error:
            return HTTPStatus.BAD_REQUEST, _refusal(str(error))
        except RegistryError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, _refusal(str(error))
        except UserError as error:
            return HTTPStatus.BAD_REQUEST, _refusal(str(error))
        except Exception as error:
            _log.exception("a request failed", cluster=self._cluster, path="/".join(asked.parts))
            return HTTPStatus.INTERNAL_SERVER_ERROR, _refusal(f"unexpected: {type(error).__name__}")

    def _answer(self, asked: Asked) -> StatusAndBody:
        match asked.parts:
            case ():
                return self._clusters(asked)
            case (verb,) if (asked.method, verb) in self._verbs:
                return self._verbs[(asked.method, verb)](asked)
            case ("precheck", name) if asked.method == "GET":
                return HTTPStatus.OK, plain_report(check(self._settings, self._cluster, name))
            case ("close-client", name) if asked.method == "POST":
                return self._run(asked, lambda run: run.run(CommandName.CLOSE_CLIENT, name=name))
            case ("internal", "promote-cursor"):
                return _not_here(asked)
            case (name,) if name not in {verb for _, verb in self._verbs}:
                return self._one_cluster(asked, name)
        return HTTPStatus.NOT_FOUND, _refusal(f"{asked.method} {BASE}/{'/'.join(asked.parts)} is not served")

    # --- the registry

    def _clusters(self, asked: Asked) -> StatusAndBody:
        if asked.method != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, _refusal("only GET lists the clusters")
        return HTTPStatus.OK, list(self._registered())

    def _registered(self) -> Iterator[dict[str, Any]]:
        brokers, clusters = named(self._settings, self._cluster)
        with ClusterSessions(self._cluster, brokers, clusters) as sessions:
            view = Registry(sessions.brokers).read()
        for each in view.clusters:
            # As the proposal spells it.
            yield {"name": each.name, "metadataServiceUri": each.uri, "status": each.status.value.upper()}

    def _one_cluster(self, asked: Asked, name: str) -> StatusAndBody:
        if asked.method == "POST":
            return self._register(asked, name)
        if asked.method == "DELETE":
            return self._run(asked, partial(_agreed, CommandName.UNREGISTER, name=name))
        found = next((each for each in self._registered() if each["name"] == name), None)
        if asked.method == "GET" and found is not None:
            return HTTPStatus.OK, found
        return HTTPStatus.NOT_FOUND, _refusal(f"{name} is not registered")

    def _register(self, asked: Asked, name: str) -> StatusAndBody:
        status, uri = asked.text("status"), asked.text("metadataServiceUri")
        if (asked.text("name") or name) != name:
            raise BadRequestError(f"name: the path says {name}")
        known = {each.value for each in ClusterStatus}
        if status is not None and status.lower() not in known:
            raise BadRequestError(f"status: {status} is none of {', '.join(sorted(known))}")
        about = registration(self._settings, self._cluster, name)
        if uri is not None and _place(uri) != _place(about["uri"]):
            raise BadRequestError(f"metadataServiceUri: the settings have {name} at {about['uri']}")
        about["status"] = status.lower() if status else None
        return self._run(
            asked, lambda run: run.run(CommandName.REGISTER, **about), "name", "metadataServiceUri", "status"
        )

    # --- the switch

    def _switch(self, asked: Asked) -> StatusAndBody:
        target = _needed(asked, "target")
        return self._run(asked, lambda run: run.start(target, None), "target")

    def _roll_back(self, asked: Asked) -> StatusAndBody:
        only = not asked.flag("withBrokers", otherwise=False)
        command = partial(_agreed, CommandName.ROLLBACK, attribution_only=only)
        return self._run(asked, command, "withBrokers")

    def _clean_up(self, asked: Asked) -> StatusAndBody:
        """As on the command line nothing is deleted unless that is said, and then all that is to be."""
        named = {name: given for name in ("srcCluster", "srcClusterFilter") if (given := asked.text(name))}
        source = (self._record() or {}).get("source") if named else None
        for name, given in named.items():
            if given != source:
                raise BadRequestError(f"{name}: ledgers of {source or 'no cluster'} are to be deleted")
        return self._run(
            asked, lambda run: run.clean_up(execute=True), "srcCluster", "srcClusterFilter", dry_unless_said=True
        )

    def _plain_command(self, name: CommandName) -> Callable[[Asked], StatusAndBody]:
        return lambda asked: self._run(asked, partial(_agreed, name))

    def _status(self, _asked: Asked) -> StatusAndBody:
        plain = self._record()
        return HTTPStatus.OK, {"activeCluster": plain and plain["active"], "readMode": "DUAL_READ", "switch": plain}

    def _record(self) -> dict[str, Any] | None:
        with LoopClient(self._settings, self._cluster, _READ_SECONDS, with_past=True) as loop:
            record = loop.record()
        return None if record is None else record.model_dump(mode="json")

    def _cleanup_targets(self, _asked: Asked) -> StatusAndBody:
        with LoopClient(self._settings, self._cluster, _READ_SECONDS, with_past=True, ledgers=is_to_clean) as loop:
            found = of_switch(loop.ledgers.values(), loop.record())
        return HTTPStatus.OK, [plain_ledger(each) for each in found]

    def _run(
        self, asked: Asked, command: Callable[[CommandRunner], object], *fields: str, dry_unless_said: bool = False
    ) -> StatusAndBody:
        """Run a command as the command line does, and say what it says; a field that it does not know is refused."""
        for name in sorted(asked.body.keys() - {*fields, *_COMMON_FIELDS}):
            raise BadRequestError(f"{name}: {_INSTEAD.get(name, 'is not known here')}")
        console = _Captured(Console(quiet=True), as_json=True, yes=True)
        options = CommandOptions(
            cluster=self._cluster,
            actor=asked.text("actor") or f"rest@{asked.peer}",
            reason=asked.text("reason") or "",
            key=asked.key,
            expected_epoch=_epoch(asked),
            dry_run=asked.flag("dryRun", otherwise=dry_unless_said),
        )
        command(CommandRunner(self._settings, options, console, self._timeout_seconds))
        answer = console.answers[-1] if console.answers else {"accepted": None}
        return _http_status(answer), answer


_COMMON_FIELDS = ("actor", "reason", "expectedEpoch", "dryRun")
_INSTEAD = {
    "maxDeletions": "a clean-up deletes all that is listed; `abort` stops it",
    "force": "the settings say how long a clean-up must wait (`cleanup_after`)",
}
_WITHOUT_ARGUMENTS = (CommandName.ABORT, CommandName.PAUSE, CommandName.RESUME)


def _agreed(name: CommandName, run: CommandRunner, /, **args: Any) -> None:
    """A program that asks has made up its mind."""
    run.run_if_agreed("", name, **args)


def _http_status(answer: Mapping[str, Any]) -> HTTPStatus:
    if answer["accepted"] is None:
        return HTTPStatus.GATEWAY_TIMEOUT
    if answer["accepted"]:
        return HTTPStatus.OK
    code = answer.get("code")
    return _STATUSES.get(RejectCode(code), HTTPStatus.CONFLICT) if code else HTTPStatus.CONFLICT


def _not_here(_asked: Asked) -> StatusAndBody:
    return HTTPStatus.NOT_IMPLEMENTED, _refusal("that is for brokers to do: Headgate orchestrates")


def _needed(asked: Asked, name: str) -> str:
    value = asked.text(name)
    if not value:
        raise BadRequestError(f"{name}: is needed")
    return value


def _epoch(asked: Asked) -> int | None:
    value = asked.body.get("expectedEpoch")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise BadRequestError("expectedEpoch: a number from 0 on is needed")
    return value


def _place(uri: str) -> str:
    """Hosts and path: the scheme names a layout, which is read."""
    return uri.partition("://")[2].replace(";", ",").rstrip("/")


def _refusal(why: str) -> dict[str, str]:
    return {"reason": why}


# --- the server


class SwitchAdminServer(HttpServer):
    """Serves the verbs of one broker cluster.

    Args:
        api: where, and to whom.
        answer: does what is asked.

    Raises:
        UserError: it cannot listen there, or its files cannot be used.
    """

    def __init__(self, api: SwitchAdminApi, answer: Callable[[Asked], StatusAndBody]) -> None:
        values = {"answer": staticmethod(answer), "token": api.bearer_token() or ""}
        handler = type("Handler", (_Handler,), values)
        setting = "switching.admin_api.port"
        super().__init__(handler, api.host, api.port, name="switch admin", setting=setting, tls=api.tls())


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    server_version = "headgate"
    sys_version = ""
    answer: Callable[[Asked], StatusAndBody]
    token: str

    def do_GET(self) -> None:
        """Read something."""
        self._serve()

    def do_POST(self) -> None:
        """Give a command."""
        self._serve()

    def do_DELETE(self) -> None:
        """Forget a cluster."""
        self._serve()

    def _serve(self) -> None:
        status, answer = self._outcome()
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def _outcome(self) -> StatusAndBody:
        if not self._is_let_in():
            return HTTPStatus.UNAUTHORIZED, _refusal("a bearer token is needed")
        try:
            return self.answer(self._asked())
        except BadRequestError as error:
            return HTTPStatus.BAD_REQUEST, _refusal(str(error))

    def _is_let_in(self) -> bool:
        return is_let_in(self.headers.get("Authorization"), self.token)

    def _asked(self) -> Asked:
        url = urlsplit(self.path)
        path = url.path.rstrip("/")
        if path != BASE and not path.startswith(f"{BASE}/"):
            raise BadRequestError(f"only {BASE} is served")
        parts = tuple(unquote(part) for part in path[len(BASE) :].split("/") if part)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        return Asked(
            method=self.command,
            parts=parts,
            body={**query, **self._body()},
            key=self.headers.get("Idempotency-Key"),
            peer=str(self.client_address[0]),
        )

    def _body(self) -> Mapping[str, Any]:
        length = self.headers.get("Content-Length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > _MAX_BODY_BYTES:
            raise BadRequestError(f"a body of at most {_MAX_BODY_BYTES} bytes is taken")
        data = self.rfile.read(int(length))
        try:
            body: Any = read_json(data, Any) if data.strip() else {}
        except UnreadableJsonError:
            raise BadRequestError("the body is no JSON") from None
        if not isinstance(body, dict):
            raise BadRequestError("the body is no JSON object")
        return body

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing on the console: commands are on their topic, with who gave them."""


def admin_api_parts(settings: Settings) -> Iterator[Component]:
    """A server for each broker cluster whose settings have one."""
    for name, cluster in settings.clusters.items():
        execution: SwitchExecution | None = cluster.switching
        if execution is not None and execution.admin_api is not None:
            yield Component(f"switch admin of {name}", _serving(settings, name, execution.admin_api))


def _serving(settings: Settings, cluster: str, api: SwitchAdminApi) -> Callable[[threading.Event], None]:
    def run(stop: threading.Event) -> None:
        admin = SwitchAdmin(settings, cluster, api.timeout.total_seconds())
        with SwitchAdminServer(api, admin.answer) as server:
            _log.info("switch admin serves", cluster=cluster, host=api.host, port=server.port)
            stop.wait()

    return run
