"""The routes: the page at `/`, its files, and the API under `/api/v1`. Read-only."""

import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import unquote

from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from connectors.collection import ticks
from connectors.exporter.http import error_response, json_response
from connectors.exporter.page.documents import ClustersDocument
from connectors.exporter.page.history import HOUR, INTERVAL_SECONDS, WINDOWS, History
from connectors.exporter.page.render import render_alert, render_cluster, render_page
from connectors.exporter.page.status import StatusDocuments, build_status
from connectors.views import LoopSnapshot
from policies.policy import LOOP

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
            if self._status is None or self._clock() - self._built_at >= _FRESH_SECONDS:
                self._status = build_status(self._snapshot(), version=self._version, settings_hash=self._settings_hash)
                self._responses, self._built_at = {}, self._clock()
            found = self._responses.get(path) or self._make_response(path, self._status)
            # One name has many percent-encoded forms.
            if found is not None and found.status_code == HTTPStatus.OK and "%" not in path:
                self._responses[path] = found
            return found

    def _make_response(self, path: str, status: StatusDocuments) -> Response | None:
        page: bytes | None = None
        match [unquote(part) for part in path.split("/")[1:]]:
            case [""]:
                page = render_page(status, self._history)
            case ["clusters", name] if name == LOOP:  # where an alert about the loop itself leads
                page = render_page(status, self._history)
            case ["clusters", name]:
                page = render_cluster(status, self._history, name, HOUR)
            case ["clusters", name, window] if window in WINDOWS:
                page = render_cluster(status, self._history, name, WINDOWS[window])
            case ["alerts", name]:
                page = render_alert(status, name)
            case ["api", *below]:
                return self._find_document(below, status)
        return None if page is None else HTMLResponse(page)

    def _find_document(self, below: list[str], status: StatusDocuments) -> Response:
        found: BaseModel | None = None
        match below:
            case ["v1", "clusters", name]:
                found = next((each for each in status.loop.clusters if each.cluster == name), None)
            case ["v1", "history"]:
                found = self._history.document()
            case ["v1", kind]:
                clusters = ClustersDocument(clusters=status.loop.clusters)
                documents: dict[str, BaseModel] = {"status": status.loop, "clusters": clusters}
                documents |= {"alerts": status.alerts, "decisions": status.decisions}
                found = documents.get(kind)
        if found is None:
            paths = "status, clusters, clusters/NAME, alerts, decisions and history"
            return error_response(HTTPStatus.NOT_FOUND, f"there is nothing here; below /api/v1 there are {paths}")
        return json_response(found)
