"""One fill of real brokers, watched three times at once: every 10 s, every second, and adaptively between 10 s and 1 s.

Three brokers on small real disks are three clusters of one `headgate run`, which differ only in their `poll_interval`
and `poll_interval_min`. Each round has a rest, a fill past the hard limit, and deletion. For each watcher it prints how
long after the crossed limit a reading showed it and a stop was decided, and how many requests the brokers got at rest
and during the fill. Takes about six minutes; needs root for the disks.

    python -m bench.looks
"""

import argparse
import json
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from deploy.demo.load import Load
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars
from tests.system.disks import why_not_mountable
from tests.system.fill import MEBIBYTE, MEGABYTE, TOPIC, FillCluster, fill_cluster
from tests.system.loop import Entry, Headgate, Topic, await_ready, write_settings

DISK, LIMIT = 360 * MEBIBYTE, 200 * MEBIBYTE
LOAD = 3 * MEGABYTE
WATCHERS = {
    "fixed, 10 s": {"poll_interval": "10s", "poll_interval_min": "10s"},
    "fixed, 1 s": {"poll_interval": "1s", "poll_interval_min": "1s"},
    "10 s, 1 s when it matters": {"poll_interval": "10s", "poll_interval_min": "1s"},
}
CLUSTERS = dict(zip((f"watched-{n}" for n in range(len(WATCHERS))), WATCHERS, strict=True))
LONGEST_SECONDS = 25.0


@dataclass
class Watcher:
    """The measurements of one watcher; times in seconds since the epoch."""

    seen: list[float] = field(default_factory=list)
    """Seconds from the crossing to the reading that shows it, by round."""
    decided: list[float] = field(default_factory=list)
    resting: int = 0
    filling: int = 0
    """Requests of all rounds."""


@dataclass(frozen=True)
class Round:
    """When the round rested, filled, crossed the limit and ended."""

    rested: float
    filled: float
    crossed: float
    ended: float


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rest", type=float, default=60, metavar="SECONDS", help="before each fill")
    parser.add_argument("--within", type=float, default=510, metavar="SECONDS", help="begin no round that ends later")
    parser.add_argument("--out", type=Path, help="append what each watcher saw as a JSON line")
    given = parser.parse_args()
    if why := why_not_mountable():
        raise SystemExit(why)
    began, draw = time.monotonic(), Random()
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, _running(Path(folder)) as (cluster, topics):
        rounds = []
        while time.monotonic() - began + given.rest + (DISK - LIMIT) / LOAD + LONGEST_SECONDS + 20 < given.within:
            rounds.append(_round(cluster, given.rest + draw.random() * 10))
            print(f"round {len(rounds)}: {rounds[-1]}", flush=True)
        watchers = {CLUSTERS[name]: _watcher(name, rounds, *topics) for name in CLUSTERS}
    if given.out:
        with given.out.open("a") as out:
            out.write("".join(json.dumps({"looks": name, **vars(w)}) + "\n" for name, w in watchers.items()))
    resting_seconds = sum(r.filled - r.rested for r in rounds)
    filling_seconds = sum(r.ended - r.filled for r in rounds)
    print(
        "| looks | crossed → read, s: each round | median | crossed → stop decided, s: median "
        "| requests a minute at rest | while it fills |\n" + "|---" * 6 + "|"
    )
    for name, watcher in watchers.items():
        print(
            f"| {name} | {', '.join(f'{s:.1f}' for s in sorted(watcher.seen))} | {statistics.median(watcher.seen):.1f} "
            f"| {statistics.median(watcher.decided):.1f} | {watcher.resting * 60 / resting_seconds:.0f} "
            f"| {watcher.filling * 60 / filling_seconds:.0f} |"
        )


def _round(cluster: FillCluster, rest_seconds: float) -> Round:
    cluster.retain(-1)
    rested = time.time()
    time.sleep(rest_seconds)
    filled = time.time()
    with Load(cluster.servers, TOPIC, LOAD):
        while min(cluster.free_bytes().values()) > LIMIT:
            time.sleep(0.02)
        crossed = time.time()
        time.sleep(3)  # the fill continues past the limit
    time.sleep(LONGEST_SECONDS - 3)
    ended = time.time()
    cluster.retain(1000)
    while min(cluster.free_bytes().values()) < LIMIT * 1.2:
        time.sleep(0.1)
    time.sleep(12)  # longer than the slowest interval, so that all watchers have released the producers
    return Round(rested, filled, crossed, ended)


def _watcher(cluster: str, rounds: list[Round], readings: Topic, decisions: Topic) -> Watcher:
    read = [entry for entry in readings.entries() if entry.data.get("cluster") == cluster and "volumes" in entry.data]
    decided = [entry for entry in decisions.entries() if entry.data["cluster"] == cluster]
    watcher = Watcher()
    for each in rounds:
        watcher.resting += sum(each.rested <= entry.appended_ms / 1000 < each.filled for entry in read)
        watcher.filling += sum(each.filled <= entry.appended_ms / 1000 < each.ended for entry in read)
        watcher.seen.append(_first(read, each.crossed, _shows_it) - each.crossed)
        watcher.decided.append(_first(decided, each.crossed, lambda data: data["factor"] == 0.0) - each.crossed)
    return watcher


def _shows_it(data: dict[str, Any]) -> bool:
    return any(volume["usable_bytes"] <= LIMIT for volume in data["volumes"])


def _first(entries: list[Entry], since: float, holds: Any) -> float:
    """When the first matching record was appended, seconds since the epoch."""
    # The disk is sampled every 20 ms, so the crossing may be earlier by that.
    return min(e.appended_ms / 1000 for e in entries if e.appended_ms / 1000 >= since - 0.05 and holds(e.data))


@contextmanager
def _running(folder: Path) -> Iterator[tuple[FillCluster, tuple[Topic, Topic]]]:
    jars = ensure_jars("kafka", default_cache_dir(), progress=print)
    with ExitStack() as stack:
        cluster = stack.enter_context(fill_cluster(folder, jars, disk_bytes=DISK))
        loop = stack.enter_context(EmbeddedKafka(folder / "loop", jars, heap_mebibytes=192))
        port = 30_000 + secrets.randbelow(2_000)
        file = write_settings(
            folder / "headgate.yaml",
            kafka={"bootstrap_servers": loop.bootstrap_servers},
            topics={"prefix": "looks"},
            data_dir=str(folder / "data"),
            http={"port": port},
            clusters={
                name: {"kafka": {"bootstrap_servers": cluster.servers, **WATCHERS[watcher]}}
                for name, watcher in CLUSTERS.items()
            },
            policies={"throttle": {"hard": {"available_bytes_below": LIMIT}, "min_hold": "5s"}},
        )
        headgate = stack.enter_context(Headgate(["run", "-s", str(file)], folder / "run.log"))
        await_ready(headgate, port)
        names = (f"looks.{kind}" for kind in ("observed.log-dirs", "decided.throttle"))
        readings, decisions = (stack.enter_context(Topic(loop.bootstrap_servers, name)) for name in names)
        yield cluster, (readings, decisions)
        headgate.stop()


if __name__ == "__main__":
    main()
