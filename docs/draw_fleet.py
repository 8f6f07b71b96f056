"""Draws how long decisions take, and what of two cores, as a fleet grows.

    python bench/fleet.py --speed 0.25 0.5 0.75 1 1.5 --seconds 60 --record fleet.jsonl
    python docs/draw_fleet.py fleet.jsonl fleet.svg

Each line of the record is one pace of the same fleet; the last run of a pace counts.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from draw_fill import GAP, LEFT, PANEL, RIGHT, STYLE, TOP, WIDTH, Panel, text_at

LONGEST, GOAL = 10.0, 2.0
"""Seconds: what lies above is drawn at the upper edge."""


def draw(paces: Sequence[dict[str, Any]]) -> str:
    """The picture."""
    paces = sorted(paces, key=lambda pace: float(pace[OFFERED]))
    most = paces[-1][OFFERED]
    waited = Panel(
        0, "Seconds from append to decision: p50, p99 (dashed: the goal)", "free", LONGEST, (0, 2, 5, 10), most
    )
    cores = Panel(1, "Cores: all of the query, and Python alone", "factor", 2.0, (0, 1, 2), most)
    height = TOP + 2 * (PANEL + GAP) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">',
        "<title>Latency and cores of one query over observations a second</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height:g}"/>',
        *waited.frame(),
        *waited.limit(GOAL, "goal", "slow"),
        waited.curve((pace[OFFERED], pace["p50, ms"] / 1000) for pace in paces),
        waited.curve((pace[OFFERED], pace["p99, ms"] / 1000) for pace in paces),
        *cores.frame(),
        cores.curve((pace[OFFERED], pace["cores"]) for pace in paces),
        cores.curve((pace[OFFERED], pace["cores"] * _python_share(pace)) for pace in paces),
        *_axis(cores, [pace[OFFERED] for pace in paces]),
        "</svg>\n",
    ]
    return "\n".join(parts)


OFFERED = "offered, observations a second"


def _python_share(pace: dict[str, Any]) -> float:
    return float(pace["of it in Python"]) / float(pace["CPU seconds a million observations"])


def _axis(panel: Panel, rates: Iterable[float]) -> Iterable[str]:
    bottom = panel.top + PANEL
    for rate in rates:
        yield text_at(panel.x(rate), bottom + 18, f"{rate:.0f}", anchor="middle")
    yield text_at((LEFT + WIDTH - RIGHT) / 2, bottom + 36, "observations a second", anchor="middle")


def main() -> None:
    """Draw what is recorded."""
    record, picture = map(Path, sys.argv[1:])
    lines = map(json.loads, record.read_text().splitlines())
    picture.write_text(draw(list({line["speed"]: line for line in lines}.values())))


if __name__ == "__main__":
    main()
