"""The REST API of PIP-477 below `/admin/v2/bookie-clusters`, served by the process that carries out switches.

Each request runs the same command as the command line, with the same checks and rejections. The API is off unless the
settings enable it, and requires the token. Paths that only a broker can serve (`/internal/promote-cursor`,
`/read-mode`) return 501.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

import structlog
from rich.console import Console

from connectors.component import Component
from connectors.switching.cluster_sessions import ClusterSessions
from connectors.switching.registry import Registry, RegistryError
from connectors.switching.settings import SwitchAdminApi, SwitchExecution
from deploy.settings.application import Settings
from deploy.switch.admin_server import BASE, AdminRequest, BadRequestError, StatusAndBody, SwitchAdminServer, refuse
from deploy.switch.clusters import bookkeeper_clusters, identify_cluster
from deploy.switch.command_runner import CommandConsole, CommandRunner
from deploy.switch.ledger_views import is_to_clean, plain_ledger, select_ledgers
from deploy.switch.loop_client import CommandOptions, LoopClient
from deploy.switch.precheck_command import check, plain_report
from policies.errors import UserError
from policies.switching.decisions import RejectCode
from policies.switching.state import ClusterStatus

_READ_SECONDS = 1.0
_STATUSES = {RejectCode.NOT_FOUND: HTTPStatus.NOT_FOUND, RejectCode.URI_DUPLICATE: HTTPStatus.BAD_REQUEST}
"""Any other rejection is a conflict with the present state."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Captured(CommandConsole):
    """Keeps the JSON answers, and asks nothing."""

    answers: list[dict[str, Any]] = field(default_factory=list)

    def print_json(self, plain: dict[str, Any]) -> None:
        self.answers.append(plain)


class SwitchAdmin:
    """Runs the commands of one broker cluster. Threads may share it: it runs one command at a time.

    Args:
        settings: the settings of the application.
        cluster: the broker cluster.
        timeout_seconds: how long to wait for the loop's decision.
    """

    def __init__(self, settings: Settings, cluster: str, timeout_seconds: float) -> None:
        self._settings, self._cluster, self._timeout_seconds = settings, cluster, timeout_seconds
        self._one = threading.Lock()
        self._verbs: Mapping[tuple[str, str], Callable[[AdminRequest], StatusAndBody]] = {
            ("POST", "switch"): self._start,
            ("POST", "rollback"): self._roll_back,
            ("POST", "cleanup"): self._clean_up,
            ("GET", "status"): self._get_status,
            ("GET", "cleanup-targets"): self._list_cleanup_targets,
            ("POST", "read-mode"): _refuse_broker_work,
            **{("POST", name): partial(self._run_agreed, name) for name in ("abort", "pause", "resume")},
        }

    def answer(self, request: AdminRequest) -> StatusAndBody:
        """Answer a request; every failure becomes an answer."""
        try:
            with self._one:
                return self._answer(request)
        except (BadRequestError, UserError) as error:
            return HTTPStatus.BAD_REQUEST, refuse(str(error))
        except RegistryError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, refuse(str(error))
        except Exception as error:
            _log.exception("a request failed", cluster=self._cluster, path="/".join(request.parts))
            return HTTPStatus.INTERNAL_SERVER_ERROR, refuse(f"unexpected: {type(error).__name__}")

    def _answer(self, request: AdminRequest) -> StatusAndBody:
        match request.parts:
            case ():
                if request.method != "GET":
                    return HTTPStatus.METHOD_NOT_ALLOWED, refuse("only GET lists the clusters")
                return HTTPStatus.OK, list(self._read_registered())
            case (verb,) if (request.method, verb) in self._verbs:
                return self._verbs[(request.method, verb)](request)
            case ("precheck", name) if request.method == "GET":
                return HTTPStatus.OK, plain_report(check(self._settings, self._cluster, name))
            case ("close-client", name) if request.method == "POST":
                return self._run(request, lambda run: run.run("close-client", name=name))
            case ("internal", "promote-cursor"):
                return _refuse_broker_work(request)
            case (name,) if name not in {verb for _, verb in self._verbs}:
                return self._handle_cluster(request, name)
        return HTTPStatus.NOT_FOUND, refuse(f"{request.method} {BASE}/{'/'.join(request.parts)} is not served")

    # --- the registry

    def _read_registered(self) -> Iterator[dict[str, Any]]:
        brokers, clusters = bookkeeper_clusters(self._settings, self._cluster)
        with ClusterSessions(self._cluster, brokers, clusters) as sessions:
            view = Registry(sessions.brokers).read()
        for each in view.clusters:
            # The fields have the names of PIP-477.
            yield {"name": each.name, "metadataServiceUri": each.uri, "status": each.status.value.upper()}

    def _handle_cluster(self, request: AdminRequest, name: str) -> StatusAndBody:
        if request.method == "POST":
            return self._register(request, name)
        if request.method == "DELETE":
            return self._run_agreed("unregister", request, name=name)
        found = next((each for each in self._read_registered() if each["name"] == name), None)
        if request.method == "GET" and found is not None:
            return HTTPStatus.OK, found
        return HTTPStatus.NOT_FOUND, refuse(f"{name} is not registered")

    def _register(self, request: AdminRequest, name: str) -> StatusAndBody:
        status, uri = request.text("status"), request.text("metadataServiceUri")
        if (request.text("name") or name) != name:
            raise BadRequestError(f"name: the path says {name}")
        known = {each.value for each in ClusterStatus}
        if status is not None and status.lower() not in known:
            raise BadRequestError(f"status: {status} is none of {', '.join(sorted(known))}")
        about = identify_cluster(self._settings, self._cluster, name)
        if uri is not None and _strip_scheme(uri) != _strip_scheme(about["uri"]):
            raise BadRequestError(f"metadataServiceUri: the settings have {name} at {about['uri']}")
        about["status"] = status.lower() if status else None
        return self._run(request, lambda run: run.run("register", **about), "name", "metadataServiceUri", "status")

    # --- the switch

    def _start(self, request: AdminRequest) -> StatusAndBody:
        target = request.text("target")
        if not target:
            raise BadRequestError("target: is missing")
        return self._run(request, lambda run: run.start(target, None), "target")

    def _roll_back(self, request: AdminRequest) -> StatusAndBody:
        with_brokers = request.flag("withBrokers", otherwise=False)
        return self._run_agreed("rollback", request, "withBrokers", attribution_only=not with_brokers)

    def _clean_up(self, request: AdminRequest) -> StatusAndBody:
        """As on the command line, a clean-up is a dry run by default; else it deletes all listed ledgers."""
        named = {name: given for name in ("srcCluster", "srcClusterFilter") if (given := request.text(name))}
        source = (self._record() or {}).get("source") if named else None
        for name, given in named.items():
            if given != source:
                raise BadRequestError(f"{name}: the ledgers to delete are those of {source or 'no cluster'}")
        return self._run(
            request, lambda run: run.clean_up(execute=True), "srcCluster", "srcClusterFilter", dry_unless_said=True
        )

    def _run_agreed(self, name: str, request: AdminRequest, /, *fields: str, **args: Any) -> StatusAndBody:
        """Run a command that the command line confirms with its user; a request needs no confirmation."""
        return self._run(request, lambda run: run.confirm_and_run("", name, **args), *fields)

    def _get_status(self, _request: AdminRequest) -> StatusAndBody:
        plain = self._record()
        return HTTPStatus.OK, {"activeCluster": plain and plain["active"], "readMode": "DUAL_READ", "switch": plain}

    def _record(self) -> dict[str, Any] | None:
        with LoopClient(self._settings, self._cluster, _READ_SECONDS, with_past=True) as loop:
            record = loop.record()
        return None if record is None else record.model_dump(mode="json")

    def _list_cleanup_targets(self, _request: AdminRequest) -> StatusAndBody:
        with LoopClient(self._settings, self._cluster, _READ_SECONDS, with_past=True, ledgers=is_to_clean) as loop:
            found = select_ledgers(loop.ledgers.values(), loop.record())
        return HTTPStatus.OK, [plain_ledger(each) for each in found]

    def _run(
        self,
        request: AdminRequest,
        command: Callable[[CommandRunner], object],
        *fields: str,
        dry_unless_said: bool = False,
    ) -> StatusAndBody:
        """Run a command as the command line does, and return its JSON. An unknown field is refused."""
        for name in sorted(request.body.keys() - {*fields, *_COMMON_FIELDS}):
            raise BadRequestError(f"{name}: {_INSTEAD.get(name, 'is not a field of this request')}")
        epoch = request.body.get("expectedEpoch")
        if epoch is not None and (not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0):
            raise BadRequestError("expectedEpoch: must be a number from 0 on")
        console = _Captured(Console(quiet=True), as_json=True, yes=True)
        options = CommandOptions(
            cluster=self._cluster,
            actor=request.text("actor") or f"rest@{request.peer}",
            reason=request.text("reason") or "",
            key=request.key,
            expected_epoch=epoch,
            dry_run=request.flag("dryRun", otherwise=dry_unless_said),
        )
        command(CommandRunner(self._settings, options, console, self._timeout_seconds))
        answer = console.answers[-1] if console.answers else {"accepted": None}
        return _http_status(answer), answer


_COMMON_FIELDS = ("actor", "reason", "expectedEpoch", "dryRun")
_INSTEAD = {
    "maxDeletions": "a clean-up deletes all listed ledgers; `abort` stops it",
    "force": "the setting `cleanup_after` decides how long a clean-up must wait",
}


def _http_status(answer: Mapping[str, Any]) -> HTTPStatus:
    if answer["accepted"] is None:
        return HTTPStatus.GATEWAY_TIMEOUT
    if answer["accepted"]:
        return HTTPStatus.OK
    code = answer.get("code")
    return _STATUSES.get(RejectCode(code), HTTPStatus.CONFLICT) if code else HTTPStatus.CONFLICT


def _refuse_broker_work(_request: AdminRequest) -> StatusAndBody:
    return HTTPStatus.NOT_IMPLEMENTED, refuse("only a broker can do that: Headgate orchestrates")


def _strip_scheme(uri: str) -> str:
    """Return hosts and path. The scheme names a layout, which is read from the cluster instead."""
    return uri.partition("://")[2].replace(";", ",").rstrip("/")


def admin_api_components(settings: Settings) -> Iterator[Component]:
    """Return a component for each broker cluster whose settings enable the API."""
    for name, cluster in settings.clusters.items():
        execution: SwitchExecution | None = cluster.switching
        if execution is not None and execution.admin_api is not None:
            yield Component(f"switch admin of {name}", _serve(settings, name, execution.admin_api))


def _serve(settings: Settings, cluster: str, api: SwitchAdminApi) -> Callable[[threading.Event], None]:
    def run(stop: threading.Event) -> None:
        admin = SwitchAdmin(settings, cluster, api.timeout.total_seconds())
        with SwitchAdminServer(api, admin.answer) as server:
            _log.info("switch admin serves", cluster=cluster, host=api.host, port=server.port)
            stop.wait()

    return run
