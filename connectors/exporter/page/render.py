"""Renders the page: one template over the documents of a moment. Names from elsewhere are always escaped."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from connectors.exporter.page.charts import HEIGHT, WIDTH, Chart, chart
from connectors.exporter.page.documents import Concern
from connectors.exporter.page.history import LOOP, POINTS, History
from connectors.exporter.page.snapshot import Snapshot
from policies.printable import printable_line
from policies.units import format_instant, human_bytes, human_seconds

SHOWN_CLUSTERS = 60
"""Those that need a look come first; of the others the names remain."""
SHOWN_DECISIONS = 25
LONGEST_NAME = 160
"""Characters of a name on the page: a path may have thousands."""

_GRAVEST_FIRST = list(Concern)
_CALM = frozenset({Concern.CALM, Concern.INFO})
_SHARES = frozenset({"factor", "fullest volume"})
"""What is drawn from 0 to 1."""


def rendered(snapshot: Snapshot, history: History) -> bytes:
    """The page of a moment."""
    clusters = sorted(snapshot.loop.clusters, key=lambda each: (_GRAVEST_FIRST.index(each.concern), each.cluster))
    shown, others = clusters[:SHOWN_CLUSTERS], clusters[SHOWN_CLUSTERS:]
    text = (
        _environment()
        .get_template("page.html")
        .render(
            fleet=snapshot.loop,
            alerts=snapshot.alerts,
            decisions=snapshot.decisions.decisions[:SHOWN_DECISIONS],
            amiss=[each for each in shown if each.concern not in _CALM],
            calm=[each for each in shown if each.concern in _CALM],
            others=others,
            loop_charts=_charts(history.of(LOOP)),
            charts={each.cluster: _charts(history.of(each.cluster)) for each in shown},
            box=(WIDTH, HEIGHT),
            Concern=Concern,
        )
    )
    return text.encode(errors="replace")


def _charts(series: Any) -> dict[str, Chart]:
    drawn = (
        chart(name, values, top=1.0 if name in _SHARES else None, length=POINTS) for name, values in series.items()
    )
    return {each.name: each for each in drawn if each is not None}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("connectors.exporter.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": human_bytes,
        "seconds": human_seconds,
        "instant": format_instant,
        "clock": lambda instant: f"{format_instant(instant)[11:19]} UTC",
        "name": _cut,
        "words": lambda text: str(text).replace("_", " ").replace("-", " "),
        "factor": lambda value: f"{value:.2f}",
        "percent": lambda share: f"{100 * share:.0f} %",
        "number": _number,
        "latency": _latency,
        "counts": _counts,
    }
    return environment


def _safe(value: Any) -> Any:
    """Control characters are spelled out; markup of the templates is left alone (it is no plain `str`)."""
    return printable_line(value) if type(value) is str else value


def _cut(text: str) -> str:
    """A long name by its two ends."""
    if len(text) <= LONGEST_NAME:
        return text
    half = (LONGEST_NAME - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def _latency(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else human_seconds(seconds)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def _counts(counts: dict[Any, int] | Iterable[tuple[Any, int]]) -> str:
    """``12 writable · 1 offline``, without what there is none of."""
    pairs = counts.items() if isinstance(counts, dict) else counts
    return " · ".join(f"{count} {str(what).replace('_', ' ')}" for what, count in pairs if count)
