"""The routes: the page at `/`, its files, and the API under `/api/v1`. Read-only."""

import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import unquote

from starlette.responses import HTMLResponse, Response

from connectors.collection import ticks
from connectors.exporter.http import error_response, json_response
from connectors.exporter.page.documents import ClustersDocument
from connectors.exporter.page.history import INTERVAL_SECONDS, WINDOWS, History
from connectors.exporter.page.render import render_alert, render_cluster, render_page
from connectors.exporter.page.status import StatusDocuments, build_status
from connectors.views import LoopSnapshot
from policies.policy import LOOP

API = "/api/v1"
_FRESH_SECONDS = 1.0
"""The documents are built at most this often, however many requests there are."""


class StatusSite:
    """Serves a snapshot of the loop, and keeps the fills of the last day."""

    def __init__(
        self,
        snapshot: Callable[[], LoopSnapshot],
        *,
        version: str,
        settings_hash: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshot = snapshot
        self._version = version
        self._settings_hash = settings_hash
        self._clock = clock
        self._history = History()
        self._lock = threading.Lock()
        self._built_at = float("-inf")
        self._status: StatusDocuments | None = None
        self._responses: dict[str, Response] = {}
        """Responses from `_status` by path, for existing paths only."""

    def run(self, stop: threading.Event) -> None:
        """Record the points of the plots until `stop` is set."""
        for _ in ticks(INTERVAL_SECONDS, stop.wait):
            self.record()

    def record(self) -> None:
        """Add one point to the plots, unless the loop's history is still being read."""
        loop = self._snapshot()
        if loop.behind is None:
            status = build_status(loop, version=self._version, settings_hash=self._settings_hash)
            with self._lock:
                self._history.add(loop.at, status.fills())

    def respond(self, path: str) -> Response | None:
        """Return the response for a path; None if it does not exist and is not below `/api`."""
        with self._lock:
            found = self._find(path)
        if found is None and (path == "/api" or path.startswith("/api/")):
            paths = "status, clusters, clusters/NAME, alerts, decisions and history"
            return error_response(HTTPStatus.NOT_FOUND, f"there is nothing here; below {API} there are {paths}")
        return found

    def _find(self, path: str) -> Response | None:
        if self._status is None or self._clock() - self._built_at >= _FRESH_SECONDS:
            self._status = build_status(self._snapshot(), version=self._version, settings_hash=self._settings_hash)
            self._responses, self._built_at = {}, self._clock()
        if path not in self._responses and (response := self._make_response(path, self._status)) is not None:
            self._responses[path] = response
        # A cluster's response is not kept, because one name has many percent-encoded forms.
        return self._responses.get(path) or _find_cluster(path, self._status) or self._find_page(path, self._status)

    def _find_page(self, path: str, status: StatusDocuments) -> Response | None:
        """Return the page of a cluster or of an alert's runbook."""
        folder, _, rest = path.removeprefix("/").partition("/")
        name, _, window = rest.partition("/")
        name = unquote(name)
        page = None
        if folder == "clusters" and name == LOOP:  # where an alert about the loop itself leads
            page = render_page(status, self._history)
        elif folder == "clusters" and (not window or window in WINDOWS):
            page = render_cluster(status, self._history, name, WINDOWS[window or "1h"])
        elif folder == "alerts" and not window:
            page = render_alert(status, name)
        return None if page is None else HTMLResponse(page)

    def _make_response(self, path: str, status: StatusDocuments) -> Response | None:
        match path:
            case "/":
                return HTMLResponse(render_page(status, self._history))
            case "/api/v1/status":
                return json_response(status.loop)
            case "/api/v1/clusters":
                return json_response(ClustersDocument(clusters=status.loop.clusters))
            case "/api/v1/alerts":
                return json_response(status.alerts)
            case "/api/v1/decisions":
                return json_response(status.decisions)
            case "/api/v1/history":
                return json_response(self._history.document())
            case _:
                return None


def _find_cluster(path: str, status: StatusDocuments) -> Response | None:
    prefix = f"{API}/clusters/"
    if not path.startswith(prefix) or "/" in path[len(prefix) :]:
        return None
    name = unquote(path[len(prefix) :])
    return next((json_response(each) for each in status.loop.clusters if each.cluster == name), None)
