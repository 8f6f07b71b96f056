"""The page at `/`, its files, and the API under `/api/v1`: routes and rendering. Read-only; all names are escaped."""

import re
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from connectors.collection import ticks
from connectors.exporter.page.history import HOUR, INTERVAL_SECONDS, WINDOWS, History, Window
from connectors.exporter.page.plot import Plot, draw_fill
from connectors.exporter.page.status import ClustersDocument, ClusterStatus, Concern, StatusDocuments, build_status
from connectors.http.server import error_response, json_response
from connectors.views import LoopSnapshot
from policies.policy import LOOP
from policies.registry import alert_kind, alert_kinds
from policies.units import format_instant, human_bytes, human_rate, human_seconds, printable_line, show_number

# Renders the page from the documents of a moment.

SHOWN_CLUSTERS = 60
"""Clusters with concerns come first; in a larger fleet the calm ones are links to their pages."""
SHOWN_DECISIONS = 25
LONGEST_NAME = 160
"""Characters of a name on the page, because a path may have thousands."""

_GRAVEST_FIRST = list(Concern)
_CALM = frozenset({Concern.CALM, Concern.INFO})
_CODE = re.compile(r"`([^`]+)`")
"""Words in backquotes, which the page shows as code."""
_MOST_PLOTS = 12
"""Of the page of all clusters, because each has 15 kB; those of the others are on their own pages."""


def render_page(status: StatusDocuments, history: History) -> bytes:
    """Return the page of a moment."""
    clusters = sorted(status.loop.clusters, key=lambda each: (_GRAVEST_FIRST.index(each.concern), each.cluster))
    shown, others = clusters[:SHOWN_CLUSTERS], clusters[SHOWN_CLUSTERS:]
    if others:  # a fleet: the calm ones are a line each
        calm = [each for each in shown if each.concern in _CALM]
        shown, others = [each for each in shown if each.concern not in _CALM], [*calm, *others]
    return _render(
        "page.html",
        status,
        alerts=status.alerts,
        decisions=status.decisions.decisions[:SHOWN_DECISIONS],
        amiss=[each for each in shown if each.concern not in _CALM],
        calm=[each for each in shown if each.concern in _CALM],
        others=others,
        plots=_draw([each for each in shown if each.concern not in _CALM][:_MOST_PLOTS], history, HOUR),
    )


def render_cluster(status: StatusDocuments, history: History, name: str, window: Window) -> bytes | None:
    """Return the page of a cluster with the plot of a window; None if there is none of that name."""
    cluster = next((each for each in status.loop.clusters if each.cluster == name), None)
    if cluster is None:
        return None
    context = {
        "cluster": cluster,
        "alerts": [each for each in status.alerts.alerts if each.cluster == name],
        "decisions": [each for each in status.decisions.decisions if each.cluster == name],
        "plots": _draw([cluster], history, window),
        "is_alone": True,
    }
    return _render("cluster.html", status, **context)


def render_alert(status: StatusDocuments, name: str) -> bytes | None:
    """Return the page of an alert: its runbook, and where it fires; None if there is no alert of that name."""
    kinds = list(alert_kinds(name))
    if not kinds:
        return None
    firing = [each for each in status.alerts.alerts if each.alert == name]
    return _render("alert.html", status, name=name, kinds=kinds, firing=firing)


def _render(template: str, status: StatusDocuments, **context: Any) -> bytes:
    context = {"is_alone": False, **context, "fleet": status.loop, "Concern": Concern, "windows": WINDOWS.values()}
    return _make_environment().get_template(template).render(context).encode(errors="replace")


def _draw(clusters: Iterable[ClusterStatus], history: History, window: Window) -> dict[tuple[str, str], Plot]:
    """Draw the fills of clusters, by cluster and policy."""
    keys = ((cluster.cluster, each.policy) for cluster in clusters for each in cluster.policies)
    courses = ((key, history.course(key, window)) for key in keys)
    return {key: draw_fill(course) for key, course in courses if course is not None}


@cache
def _make_environment() -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("connectors.exporter.page"), FileSystemLoader("/")]),
        autoescape=True,
        undefined=StrictUndefined,
        # Spells out control characters. The templates' own markup is not a plain `str`, and stays as it is.
        finalize=lambda value: printable_line(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": human_bytes,
        "rate": human_rate,
        "seconds": human_seconds,
        "instant": format_instant,
        "clock": lambda instant: f"{format_instant(instant)[11:19]} UTC",
        "name": _shorten,
        # S704: all of the sentence is escaped
        "told": lambda text: Markup(_CODE.sub(r"<code>\1</code>", str(escape(printable_line(text))))),  # noqa: S704
        "words": lambda text: str(text).replace("_", " ").replace("-", " "),
        "factor": lambda value: f"{value:.2f}",
        "percent": lambda share: f"{100 * share:.0f} %",
        "number": show_number,
        "counts": _format_counts,
        "path": lambda text: quote(text, safe=""),
        "command": _make_command,
    }
    return environment


def _shorten(text: str) -> str:
    """Keep the two ends of a long name."""
    if len(text) <= LONGEST_NAME:
        return text
    half = (LONGEST_NAME - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def _make_command(alert: Any) -> str:
    """Return the command that verifies a firing alert; empty without a runbook."""
    kind = alert_kind(alert.policy, alert.alert)
    return "" if kind is None else kind.command(alert.cluster, alert.subject)


def _format_counts(counts: dict[Any, int] | Iterable[tuple[Any, int]]) -> str:
    """Return ``12 writable · 1 offline``, without zero counts."""
    pairs = counts.items() if isinstance(counts, dict) else counts
    return " · ".join(f"{count} {str(name).replace('_', ' ')}" for name, count in pairs if count)


# The routes.

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
