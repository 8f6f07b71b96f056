"""Draws docs/fill.svg from docs/fill.jsonl: what a real fill and recovery looked like.

    python docs/draw_fill.py             # draws what is recorded
    python docs/draw_fill.py --record    # runs the closed loop anew first: root, Java, about two minutes

The first line of fill.jsonl has the settings of the run, each other one a sample: `t` seconds since the producers
began, `free` bytes of each disk, `written` bytes per second acknowledged in the second before, `factor` in force.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deploy.demo.run import Load
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import ensure_jars
from deploy.settings.application import default_cache_dir
from tests.system.fill import MEBIBYTE, MEGABYTE, TOPIC, Recorder, fill_cluster, headgate_settings, rate_at
from tests.system.loop import Headgate, Topic, await_ready, write_settings
from tests.system.waiting import eventually

HERE = Path(__file__).parent
DISK, SOFT, HARD, LOAD, BASE = 400 * MEBIBYTE, 340 * MEBIBYTE, 60 * MEBIBYTE, 20 * MEGABYTE, 8 * MEGABYTE
FILL_SECONDS, AFTER_SECONDS, EVERY = 45.0, 20.0, 3
PORT = 30_917

WIDTH, LEFT, RIGHT, TOP, PANEL, GAP = 800, 64, 24, 52, 116, 34
STYLE = """
  :root { color-scheme: light dark }
  svg { --ink: #24292f; --soft: #57606a; --grid: #d0d7de; --back: #ffffff;
        --free: #0969da; --factor: #8250df; --rate: #1a7f37; --hard: #cf222e; --slow: #9a6700 }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6edf3; --soft: #9198a1; --grid: #3d444d; --back: #0d1117;
          --free: #4493f8; --factor: #ab7df8; --rate: #3fb950; --hard: #f85149; --slow: #d29922 }
  }
  .back { fill: var(--back) }
  text { font: 12px system-ui, sans-serif; fill: var(--soft) }
  .title { font-weight: 600; fill: var(--ink) }
  .grid { stroke: var(--grid); stroke-width: 1; fill: none }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round }
  .limit { stroke-width: 1.5; stroke-dasharray: 5 4; fill: none }
  .event { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3 }
"""


@dataclass(frozen=True)
class Panel:
    """One of the plots: its place, and what its axis shows."""

    number: int
    title: str
    colour: str
    top_value: float
    ticks: Sequence[float]
    seconds: float

    @property
    def top(self) -> float:
        """Its upper edge."""
        return TOP + self.number * (PANEL + GAP)

    def x(self, seconds: float) -> float:
        """Where an instant lies."""
        return LEFT + seconds / self.seconds * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Where a value lies."""
        return self.top + PANEL * (1 - min(value / self.top_value, 1.0))

    def frame(self) -> Iterable[str]:
        """Title, grid and axis."""
        yield text_at(LEFT, self.top - 8, self.title, "title")
        for tick in self.ticks:
            yield _rule("grid", LEFT, self.y(tick), WIDTH - RIGHT, self.y(tick))
            yield text_at(LEFT - 8, self.y(tick) + 4, f"{tick:g}", anchor="end")

    def curve(self, points: Iterable[tuple[float, float]], *, steps: bool = False) -> str:
        """A line through (seconds, value)."""
        path: list[str] = []
        for seconds, value in points:
            x, y = f"{self.x(seconds):.1f}", f"{self.y(value):.1f}"
            path.append(f"{'H' + x + 'V' + y if steps else 'L' + x + ',' + y}" if path else f"M{x},{y}")
        return f'<path class="line" style="stroke: var(--{self.colour})" d="{"".join(path)}"/>'

    def limit(self, value: float, label: str, colour: str, *, below: bool = False) -> Iterable[str]:
        """A dashed line with a name at its right end, above or below it."""
        yield _rule("limit", LEFT, self.y(value), WIDTH - RIGHT, self.y(value), f"stroke: var(--{colour})")
        yield text_at(WIDTH - RIGHT - 4, self.y(value) + (14 if below else -5), label, anchor="end")


def draw(run: dict[str, Any], samples: Sequence[dict[str, Any]]) -> str:
    """The picture."""
    seconds = samples[-1]["t"]
    disk, load = run["disk_bytes"] / MEGABYTE, run["load_bytes_per_second"] / MEGABYTE
    free = Panel(0, "Free space of the fullest disk, MB", "free", disk, (0, 100, 200, 300, 400), seconds)
    factor = Panel(1, "Throttle factor", "factor", 1.0, (0, 0.5, 1), seconds)
    rate = Panel(2, "Produced and acknowledged, MB/s", "rate", 1.75 * load, (0, 10, 20, 30), seconds)
    height = rate.top + PANEL + 46
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">',
            "<title>Free space, throttle factor and produced rate over a fill and a recovery</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="back" width="{WIDTH}" height="{height:g}"/>',
            *_events(free, rate, run),
            *free.frame(),
            *free.limit(run["soft_bytes"] / MEGABYTE, "soft limit", "slow", below=True),
            *free.limit(run["hard_bytes"] / MEGABYTE, "hard limit", "hard"),
            free.curve((s["t"], min(s["free"]) / MEGABYTE) for s in samples),
            *factor.frame(),
            factor.curve(((s["t"], s["factor"]) for s in samples), steps=True),
            *rate.frame(),
            *rate.limit(load, "what producers want to write", "slow", below=True),
            rate.curve((s["t"], s["written"] / MEGABYTE) for s in samples),
            *_time_axis(rate),
            "</svg>\n",
        ]
    )


def _events(first: Panel, last: Panel, run: dict[str, Any]) -> Iterable[str]:
    x = first.x(run["freed_at"])
    yield _rule("event", x, TOP - 22, x, last.top + PANEL)
    yield text_at(x + 6, TOP - 14, "retention begins to delete")


def _time_axis(panel: Panel) -> Iterable[str]:
    bottom = panel.top + PANEL
    for tick in range(0, int(panel.seconds) + 1, 10):
        yield text_at(panel.x(tick), bottom + 18, str(tick), anchor="middle")
    yield text_at((LEFT + WIDTH - RIGHT) / 2, bottom + 36, "seconds since the producers began", anchor="middle")


def _rule(kind: str, x1: float, y1: float, x2: float, y2: float, style: str = "") -> str:
    styled = f' style="{style}"' if style else ""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{styled}/>'


def text_at(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """A text at a place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def record() -> list[dict[str, Any]]:
    """Run the closed loop on real brokers and disks, and give the lines of fill.jsonl."""
    jars = ensure_jars("kafka", default_cache_dir())
    with (
        tempfile.TemporaryDirectory(prefix="headgate-fill-") as name,
        fill_cluster(Path(name), jars, disk_bytes=DISK) as cluster,
        EmbeddedKafka(Path(name) / "loop", jars, heap_mebibytes=192) as loop,
    ):
        folder = Path(name)
        limits = {"hard": {"available_bytes_below": HARD}, "soft": {"available_bytes_below": SOFT}, "min_hold": "5s"}
        settings = headgate_settings(
            watched=cluster.servers,
            loop=loop.bootstrap_servers,
            folder=folder,
            port=PORT,
            limits=limits,
            base=BASE,
            poll="500ms",
        )
        file = write_settings(folder / "headgate.yaml", **settings)
        with Headgate(["run", "-s", str(file)], folder / "run.log") as headgate:
            await_ready(headgate, PORT)
            with Topic(loop.bootstrap_servers, f"{settings['topics']['prefix']}.decided.throttle") as decided:
                eventually("a first decision", decided.data)
                with Load(cluster.servers, TOPIC, LOAD) as load, Recorder(cluster, load) as recorder:
                    begun, begun_wall = time.monotonic(), time.time()
                    time.sleep(FILL_SECONDS)
                    cluster.retain(1000)
                    freed_at = time.monotonic() - begun
                    eventually("producers are back", lambda: recorder.rate(2) > 0.9 * LOAD)
                    time.sleep(AFTER_SECONDS)
                factors = [(entry.appended_ms / 1000 - begun_wall, entry.data["factor"]) for entry in decided.entries()]
            headgate.stop()
    run = {
        "recorded": datetime.now(UTC).date().isoformat(),
        "disk_bytes": DISK,
        "soft_bytes": SOFT,
        "hard_bytes": HARD,
        "load_bytes_per_second": LOAD,
        "base_bytes_per_second_and_broker": BASE,
        "freed_at": round(freed_at, 2),
    }
    return [run, *_lines(recorder, begun, factors)]


def _lines(recorder: Recorder, begun: float, factors: Sequence[tuple[float, float]]) -> Iterable[dict[str, Any]]:
    for index in range(0, len(recorder.samples), EVERY):
        sample = recorder.samples[index]
        at = sample.at - begun
        yield {
            "t": round(at, 2),
            "free": list(sample.free.values()),
            "written": round(rate_at(recorder.samples, index)),
            "factor": round([factor for decided_at, factor in factors if decided_at <= max(at, 0.0)][-1], 4),
        }


def main() -> None:
    """Record if asked to, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="run the closed loop anew first")
    data = HERE / "fill.jsonl"
    if parser.parse_args().record:
        data.write_text("".join(json.dumps(line) + "\n" for line in record()))
    run, *samples = map(json.loads, data.read_text().splitlines())
    (HERE / "fill.svg").write_text(draw(run, samples))


if __name__ == "__main__":
    main()
