"""The same fill of the same brokers with Strimzi's released quotas plugin, with Headgate, and with neither.

Three real brokers, each on a small real disk that holds every record; producers with `acks=all` that would fill them in
seconds. Both have the same hard limit. In each round the producers fill the disks until a broker first throttles one of
them. After a hold, retention frees the disks, and the round ends when the producers write at their full rate again.
With two interpreters and the plugin's jar at hand, this takes about 13 minutes; it needs root for the disks.

    python bench/side_by_side.py
    python bench/side_by_side.py --only plugin:5 headgate:5 --rounds 1
"""

import argparse
import json
import math
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.processes import cpu_seconds
from bench.turns import Figures, table
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import ensure_jars
from deploy.settings.application import default_cache_dir
from tests.system.disks import why_not_mountable
from tests.system.fill import (
    BROKERS,
    MEBIBYTE,
    MEGABYTE,
    TOPIC,
    FillCluster,
    FillLoad,
    Recorder,
    await_or_death,
    fill_cluster,
    headgate_settings,
    rate_at,
    set_quota,
)
from tests.system.loop import Headgate, await_ready, write_settings

DISK, LIMIT, MARGIN = 200 * MEBIBYTE, 100 * MEBIBYTE, 0.1
LOAD = 15 * MEGABYTE
FULL = 0.9
"""Share of the load above which the producers count as released."""
HOLD_SECONDS, CROSS_SECONDS, THROTTLE_SECONDS, RECOVER_SECONDS = 5.0, 30.0, 70.0, 75.0
CALLBACK = "io.strimzi.kafka.quotas.StaticQuotaCallback"
ALL = (
    "neither", "plugin:1", "headgate:1", "plugin:5", "headgate:5", "headgate+none:5", "headgate+quota:5", "plugin:60",
    "headgate:60",
)  # fmt: skip
"""What watches the disks, and its interval in seconds.

With `+none` a stop is at once (`max_told_wait: none`); with `+quota` the producers already have a quota.
"""


def main() -> None:
    """Run all contenders and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ALL, nargs="+", default=ALL)
    parser.add_argument("--rounds", type=int, default=3, help="of each; one at 60 s, on a quota, with neither")
    given = parser.parse_args()
    if why := why_not_mountable():
        raise SystemExit(why)
    columns: dict[str, Figures] = {}
    for contender in given.only:
        is_once = contender.endswith(("neither", "+quota:5", ":60"))
        rounds = list(_contend(contender, 1 if is_once else given.rounds))
        columns[contender] = {what: statistics.median(each[what] for each in rounds) for what in rounds[0]}
    print(table(columns))


def _contend(contender: str, rounds: int) -> Iterator[Figures]:
    """Run and print all rounds on the same brokers; on new ones after a broker has died."""
    done = 0
    while done < rounds:
        with (
            tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
            _field(contender, Path(folder)) as (cluster, pid),
            FillLoad(cluster.servers, TOPIC, LOAD) as load,
        ):
            while done < rounds and not cluster.dead():
                done += 1
                found = _round(cluster, pid, load)
                print(contender, done, json.dumps(found), flush=True)
                yield found


def _round(cluster: FillCluster, pid: int | None, load: FillLoad) -> Figures:
    """Measure one fill; NaN for an event that did not happen. The pid is Headgate's, if it watches the disks."""
    cluster.retain(-1)
    before, throttles, cpu = time.monotonic(), len(load.throttled), cpu_seconds(pid) if pid else 0.0
    recovery_seconds = math.nan
    with Recorder(cluster, load, quotas=False) as recorder:

        def crossed_at() -> float | None:
            return next((s.at for s in recorder.samples if s.least_free <= LIMIT), None)

        def throttled_at() -> float | None:
            return next((at for at, _ in load.throttled[throttles:] if at >= (crossed_at() or at + 1)), None)

        await_or_death(cluster, lambda: crossed_at() is not None, CROSS_SECONDS)
        if await_or_death(cluster, lambda: throttled_at() is not None, THROTTLE_SECONDS):
            await_or_death(cluster, lambda: False, HOLD_SECONDS)
        past = max(0, LIMIT - min(s.least_free for s in recorder.samples))
        if not cluster.dead():
            cluster.retain(1000)
            recovery_seconds = _recovery(cluster, recorder)
        crossed, throttled = crossed_at(), throttled_at()
    minutes = (time.monotonic() - before) / 60
    return {
        "crossed to throttled, s": throttled - crossed if crossed and throttled else math.nan,
        "written past the limit, MB": past / MEGABYTE,
        "longest throttle told, s": max((seconds for _, seconds in load.throttled[throttles:]), default=0.0),
        "dead brokers": len(cluster.dead()),
        "space back to full rate, s": recovery_seconds,
        "CPU s a minute": (cpu_seconds(pid) - cpu) / minutes if pid else 0.0,
    }


def _recovery(cluster: FillCluster, recorder: Recorder) -> float:
    """Return the seconds from the freed space to the full rate; NaN if it was not reached in time."""
    enough = LIMIT * (1 + MARGIN)
    if not await_or_death(cluster, lambda: recorder.samples[-1].least_free > enough, 20):
        return math.nan
    back = next(i for i in range(len(recorder.samples) - 1, -1, -1) if recorder.samples[i].least_free <= enough) + 1
    since = recorder.samples[min(back, len(recorder.samples) - 1)].at

    def full() -> bool:
        last = len(recorder.samples) - 1
        # Measure over two seconds after the recovery, because a burst is no rate.
        return recorder.samples[last].at - since >= 2 and rate_at(recorder.samples, last, 2) >= FULL * LOAD

    if not await_or_death(cluster, full, RECOVER_SECONDS):
        return math.nan
    return round(recorder.samples[-1].at - 2 - since, 1)  # the window began two seconds before


@contextmanager
def _field(contender: str, folder: Path) -> Iterator[tuple[FillCluster, int | None]]:
    """Start the brokers and what watches them; return them with the pid of Headgate."""
    jars = ensure_jars("kafka", default_cache_dir(), print)
    name, _, interval = contender.partition(":")
    with ExitStack() as stack:
        more: dict[str, Any] = {}
        if name == "plugin":
            jars = (*jars, *ensure_jars("quotas-plugin", default_cache_dir(), print))
            first = 21_000 + secrets.randbelow(2_900) * 3
            ports = [first + n for n in range(len(BROKERS))]
            prefix = "client.quota.callback.static"
            properties = {
                "client.quota.callback.class": CALLBACK,
                f"{prefix}.kafka.admin.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports),
                f"{prefix}.storage.check-interval": int(interval),
                f"{prefix}.storage.per.volume.limit.min.available.bytes": LIMIT,
                f"{prefix}.excluded.principal.name.list": "User:ignored",
            }
            more = {"ports": ports, "properties": properties}
        cluster = stack.enter_context(fill_cluster(folder, jars, disk_bytes=DISK, **more))
        if name in ("plugin", "neither"):
            yield cluster, None
            return
        loop = stack.enter_context(EmbeddedKafka(folder / "loop", jars, heap_mebibytes=192))
        yield cluster, stack.enter_context(_headgate(contender, folder, cluster, loop)).process.pid


@contextmanager
def _headgate(contender: str, folder: Path, cluster: FillCluster, loop: EmbeddedKafka) -> Iterator[Headgate]:
    name, _, interval = contender.partition(":")
    port, had_quota = 30_000 + secrets.randbelow(2_000), name == "headgate+quota"
    if had_quota:
        set_quota(cluster.servers, LOAD)
    settings = headgate_settings(
        watched=cluster.servers,
        loop=loop.bootstrap_servers,
        folder=folder,
        port=port,
        limits={"hard": {"available_bytes_below": LIMIT}, "recovery_margin": MARGIN, "min_hold": "5s"},
        base=None if had_quota else LOAD,
        poll=f"{interval}s",
        max_told_wait="none" if name == "headgate+none" else "30s",
    )
    file = write_settings(folder / "headgate.yaml", **settings)
    with Headgate(["run", "-s", str(file)], folder / "run.log") as headgate:
        await_ready(headgate, port)
        yield headgate
        headgate.stop()


if __name__ == "__main__":
    main()
