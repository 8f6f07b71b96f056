"""The routes: the page at `/`, its files, and the API under `/api/v1`. Read-only."""

import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from urllib.parse import unquote

from connectors.collection.schedule import ticks
from connectors.exporter.page.documents import clusters_model
from connectors.exporter.page.history import INTERVAL_SECONDS, LOOP, History
from connectors.exporter.page.openapi import API, openapi_response
from connectors.exporter.page.render import rendered
from connectors.exporter.page.snapshot import Snapshot, snapshot_of
from connectors.http.responses import HTML, Response, error_response, json_response
from connectors.loop_snapshot import LoopSnapshot

_FRESH_SECONDS = 1.0
"""However many look, the picture is made no more often."""
_STATIC: Mapping[str, str] = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class StatusSite:
    """Answers from a picture of the loop, and keeps the last hour's numbers.

    Args:
        picture: gives what there is at this moment.
        version: of Headgate.
        settings_hash: identifies the settings this process runs with.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        picture: Callable[[], LoopSnapshot],
        *,
        version: str,
        settings_hash: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._picture = picture
        self._version = version
        self._settings_hash = settings_hash
        self._clock = clock
        self._history = History()
        self._lock = threading.Lock()
        self._made_at = float("-inf")
        self._snapshot: Snapshot | None = None
        self._answers: dict[str, Response] = {}
        """Of this snapshot, by path; only of paths that there are."""

    def run(self, stop: threading.Event) -> None:
        """Keep the last hour's numbers until `stop` is set."""
        for _ in ticks(INTERVAL_SECONDS, stop.wait):
            self.record()

    def record(self) -> None:
        """One more point of the last hour; nothing while the loop's history is still read."""
        picture = self._picture()
        if picture.behind is None:
            snapshot = snapshot_of(picture, version=self._version, settings_hash=self._settings_hash)
            with self._lock:
                self._history.add(picture.at, {LOOP: snapshot.charted_of_loop(), **snapshot.charted()})

    def answer(self, path: str) -> Response | None:
        """What is to be said at a path; None where there is nothing, and that is not of the API."""
        if path.startswith("/static/"):
            return _file(path.removeprefix("/static/"))
        if path == f"{API}/openapi.json":
            return openapi_response()
        with self._lock:
            found = self._current(path)
        if found is None and (path == "/api" or path.startswith("/api/")):
            return not_found()
        return found

    def _current(self, path: str) -> Response | None:
        snapshot = self._fresh()
        if path not in self._answers and (made := self._made(path, snapshot)) is not None:
            self._answers[path] = made
        # Not kept: one name can be written in many ways.
        return self._answers.get(path) or _cluster(path, snapshot)

    def _fresh(self) -> Snapshot:
        if self._snapshot is None or self._clock() - self._made_at >= _FRESH_SECONDS:
            self._snapshot = snapshot_of(self._picture(), version=self._version, settings_hash=self._settings_hash)
            self._answers, self._made_at = {}, self._clock()
        return self._snapshot

    def _made(self, path: str, snapshot: Snapshot) -> Response | None:
        match path:
            case "/":
                return Response(rendered(snapshot, self._history), HTML)
            case "/api/v1/status":
                return json_response(snapshot.loop)
            case "/api/v1/clusters":
                return json_response(clusters_model()(clusters=snapshot.loop.clusters))
            case "/api/v1/alerts":
                return json_response(snapshot.alerts)
            case "/api/v1/decisions":
                return json_response(snapshot.decisions)
            case "/api/v1/history":
                return json_response(self._history.document())
            case _:
                return None


def not_found() -> Response:
    """What a path of the API that there is not gets."""
    return error_response(HTTPStatus.NOT_FOUND, f"there is nothing here; {API}/openapi.json says what there is")


def _cluster(path: str, snapshot: Snapshot) -> Response | None:
    prefix = f"{API}/clusters/"
    if not path.startswith(prefix) or "/" in path[len(prefix) :]:
        return None
    name = unquote(path[len(prefix) :])
    return next((json_response(each) for each in snapshot.loop.clusters if each.cluster == name), None)


@cache
def _read(name: str) -> Response:
    return Response((files("connectors.exporter.page") / "static" / name).read_bytes(), _STATIC[name])


def _file(name: str) -> Response | None:
    return _read(name) if name in _STATIC else None
