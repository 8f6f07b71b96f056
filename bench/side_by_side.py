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
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.processes import cpu_seconds
from deploy.demo.load import Load
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import ensure_jars
from deploy.settings.folders import default_cache_dir
from tests.system.disks import why_not_mountable
from tests.system.fill import (
    BROKERS,
    MEBIBYTE,
    MEGABYTE,
    TOPIC,
    FillCluster,
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
_NAMES = ("plugin", "headgate", "headgate+none", "headgate+quota", "neither")
FATAL_SIGNS = ("No space left on device", "Shutdown broker because", "Exiting Kafka", "Halting")


@dataclass(frozen=True)
class Contender:
    """What watches the disks, and its interval."""

    name: str
    interval_seconds: int

    def __str__(self) -> str:
        return f"{self.name}:{self.interval_seconds}" if self.interval_seconds else self.name

    @classmethod
    def parse(cls, text: str) -> "Contender":
        """Read ``plugin:5``, ``headgate:1``, ``headgate+none:5``, ``headgate+quota:5`` or ``neither``.

        With ``+none`` a stop is at once (`max_told_wait: none`); with ``+quota`` the producers already have a quota.
        """
        name, _, interval = text.partition(":")
        if name not in _NAMES:
            raise argparse.ArgumentTypeError(f"{text}: not one of {', '.join(_NAMES)}")
        return cls(name, int(interval or 0))


@dataclass(frozen=True)
class Round:
    """The measurements of one fill; None for an event that did not happen."""

    contender: str
    number: int
    throttled_seconds: float | None
    """From crossing the limit to the first throttle of a producer."""
    past_limit_bytes: int
    announced_seconds: float
    """The longest throttle time of a producer."""
    died: tuple[int, ...]
    recovery_seconds: float | None
    """From the freed space to the full rate."""
    cpu_seconds_per_minute: float | None


class Field(NamedTuple):
    """The servers of a round."""

    cluster: FillCluster
    headgate: Headgate | None = None

    def cpu_seconds(self) -> float:
        """Return the processor time of Headgate so far; 0 where the brokers watch themselves."""
        return cpu_seconds(self.headgate.process.pid) if self.headgate is not None else 0.0


def main() -> None:
    """Run all contenders and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    everything = ["neither", "plugin:1", "headgate:1", "plugin:5", "headgate:5", "headgate+none:5", "headgate+quota:5"]
    everything += ["plugin:60", "headgate:60"]
    parser.add_argument("--only", type=Contender.parse, nargs="+", default=[Contender.parse(c) for c in everything])
    parser.add_argument("--rounds", type=int, default=3, help="of each; one at 60 s, on a quota, with neither")
    given = parser.parse_args()
    if why := why_not_mountable():
        raise SystemExit(why)
    rounds: list[Round] = []
    for contender in given.only:
        many = contender.name in ("plugin", "headgate", "headgate+none") and contender.interval_seconds < 60
        count = given.rounds if many else 1
        for result in _contend(contender, count):
            rounds.append(result)
            print(json.dumps(asdict(result)), flush=True)
    print(_table(given.only, rounds))


def _contend(contender: Contender, rounds: int) -> Iterator[Round]:
    """Run all rounds on the same brokers; on new ones after a broker has died."""
    done = 0
    while done < rounds:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, _field(contender, Path(folder)) as field:
            with Load(field.cluster.servers, TOPIC, LOAD) as load:
                while done < rounds and not field.cluster.dead():
                    done += 1
                    yield _round(contender, done, field, load)
            for line in _last_words(field.cluster):
                print(line)


def _round(contender: Contender, number: int, field: Field, load: Load) -> Round:
    cluster = field.cluster
    cluster.retain(-1)
    before, throttles, cpu = time.monotonic(), len(load.throttled), field.cpu_seconds()
    recovery_seconds = None
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
    return Round(
        contender=str(contender),
        number=number,
        throttled_seconds=round(throttled - crossed, 2) if crossed and throttled else None,
        past_limit_bytes=past,
        announced_seconds=max((seconds for _, seconds in load.throttled[throttles:]), default=0.0),
        died=tuple(sorted(cluster.dead())),
        recovery_seconds=recovery_seconds,
        cpu_seconds_per_minute=round((field.cpu_seconds() - cpu) / minutes, 1) or None,
    )


def _recovery(cluster: FillCluster, recorder: Recorder) -> float | None:
    """Return the seconds from the freed space to the full rate; None if it was not reached in time."""
    enough = LIMIT * (1 + MARGIN)
    if not await_or_death(cluster, lambda: recorder.samples[-1].least_free > enough, 20):
        return None
    back = next(i for i in range(len(recorder.samples) - 1, -1, -1) if recorder.samples[i].least_free <= enough) + 1
    since = recorder.samples[min(back, len(recorder.samples) - 1)].at

    def full() -> bool:
        last = len(recorder.samples) - 1
        # Measure over two seconds after the recovery, because a burst is no rate.
        return recorder.samples[last].at - since >= 2 and rate_at(recorder.samples, last, 2) >= FULL * LOAD

    if not await_or_death(cluster, full, RECOVER_SECONDS):
        return None
    return round(recorder.samples[-1].at - 2 - since, 1)  # the window began two seconds before


@contextmanager
def _field(contender: Contender, folder: Path) -> Iterator[Field]:
    jars = ensure_jars("kafka", default_cache_dir(), progress=print)
    with ExitStack() as stack:
        more: dict[str, Any] = {}
        if contender.name == "plugin":
            jars = (*jars, *ensure_jars("quotas-plugin", default_cache_dir(), progress=print))
            first = 21_000 + secrets.randbelow(2_900) * 3
            ports = [first + n for n in range(len(BROKERS))]
            more = {"ports": ports, "properties": _plugin_properties(contender, ports)}
        cluster = stack.enter_context(fill_cluster(folder, jars, disk_bytes=DISK, **more))
        if contender.name in ("plugin", "neither"):
            yield Field(cluster)
            return
        loop = stack.enter_context(EmbeddedKafka(folder / "loop", jars, heap_mebibytes=192))
        yield Field(cluster, stack.enter_context(_headgate(contender, folder, cluster, loop)))


def _plugin_properties(contender: Contender, ports: Sequence[int]) -> dict[str, str | int]:
    prefix = "client.quota.callback.static"
    return {
        "client.quota.callback.class": CALLBACK,
        f"{prefix}.kafka.admin.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports),
        f"{prefix}.storage.check-interval": contender.interval_seconds,
        f"{prefix}.storage.per.volume.limit.min.available.bytes": LIMIT,
        f"{prefix}.excluded.principal.name.list": "User:ignored",
    }


@contextmanager
def _headgate(contender: Contender, folder: Path, cluster: FillCluster, loop: EmbeddedKafka) -> Iterator[Headgate]:
    port, had_quota = 30_000 + secrets.randbelow(2_000), contender.name == "headgate+quota"
    if had_quota:
        set_quota(cluster.servers, LOAD)
    settings = headgate_settings(
        watched=cluster.servers,
        loop=loop.bootstrap_servers,
        folder=folder,
        port=port,
        limits={"hard": {"available_bytes_below": LIMIT}, "recovery_margin": MARGIN, "min_hold": "5s"},
        base=None if had_quota else LOAD,
        poll=f"{contender.interval_seconds}s",
        max_told_wait="none" if contender.name == "headgate+none" else "30s",
    )
    file = write_settings(folder / "headgate.yaml", **settings)
    with Headgate(["run", "-s", str(file)], folder / "run.log") as headgate:
        await_ready(headgate, port)
        yield headgate
        headgate.stop()


def _last_words(cluster: FillCluster) -> list[str]:
    """Return the log lines of dead brokers about the cause, the first line of each kind."""
    words = []
    for broker in sorted(cluster.dead()):
        lines = cluster.kafka.log_file(broker).read_text(errors="replace").splitlines()
        telling = (next((line for line in lines if sign in line), None) for sign in FATAL_SIGNS)
        words += [f"broker {broker}: {line}" for line in dict.fromkeys(telling) if line]
    return words


def _table(contenders: Sequence[Contender], rounds: Sequence[Round]) -> str:
    head = (
        "| who, looks every | rounds | crossed → throttled, s | written past the limit, MB | longest throttle told, s "
        "| rounds with a dead broker | space back → full rate, s | CPU s a minute |"
    )
    lines = [head, "|" + "---|" * 8]
    for contender in contenders:
        own = [r for r in rounds if r.contender == str(contender)]
        if own:
            lines.append("| " + " | ".join(_row(contender, own)) + " |")
    return "\n".join(lines)


def _row(contender: Contender, rounds: Sequence[Round]) -> Iterator[str]:
    name = contender.name.replace("+quota", " on top of a quota").replace("+none", " with `max_told_wait: none`")
    yield f"{name}, {contender.interval_seconds} s" if contender.interval_seconds else name
    yield str(len(rounds))
    yield _spread([r.throttled_seconds for r in rounds], "never")
    yield _spread([r.past_limit_bytes / MEGABYTE for r in rounds], "-")
    yield _spread([r.announced_seconds for r in rounds if r.announced_seconds], "-")
    yield f"{sum(bool(r.died) for r in rounds)} of {len(rounds)}"
    yield (
        _spread([r.recovery_seconds for r in rounds if not r.died], f"not within {RECOVER_SECONDS:.0f}")
        if any(not r.died for r in rounds)
        else "-"
    )
    cpu = [r.cpu_seconds_per_minute for r in rounds if r.cpu_seconds_per_minute is not None]
    yield f"{statistics.mean(cpu):.0f}" if cpu else ("in the brokers" if contender.name == "plugin" else "-")


def _spread(values: Sequence[float | None], absent: str) -> str:
    """Format each round's value, sorted; name missing ones."""
    ordered = sorted(value for value in values if value is not None)
    said = [f"{value:,.1f}" for value in ordered]
    return ", ".join([*said, *[absent] * (len(values) - len(ordered))]) or "-"


if __name__ == "__main__":
    main()
