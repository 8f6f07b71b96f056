"""Injects faults into a real small loop for as long as you like: `python -m bench.faults --count 500 --seed 1`.

Prints a table. The status is 0 if the loop recovered from each fault, and no record is lost or wrong.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.faults.judge import Faulty, Judge, out_of_order
from bench.faults.kinds import KINDS, Harm, Kind
from bench.faults.stream import Stream
from bench.faults.world import FED, OWN, PREFIX, World
from deploy.java.jars import ensure_jars, spark_group
from deploy.settings.application import default_cache_dir
from tests.system.waiting import eventually

_LOG_DIRS = "observed.log-dirs"
_THROTTLE = "decided.throttle"
_LONGEST_WAIT_SECONDS = 1.0
_PAUSE_SECONDS = 0.2
_TOLD_SECONDS = 120.0
"""The record of a batch is written within this time."""


class Fault(NamedTuple):
    """The result of one injected fault."""

    name: str
    seconds: float | None = None
    """From the end of the harm until everything was decided, shown and carried out correctly; None: never."""
    lost: int = 0
    wrong: int = 0


@dataclass
class Result:
    """The results of all faults, in the order in which they were injected."""

    faults: list[Fault] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def table(self) -> Table:
        """The results by kind as a table for people."""
        table = Table("fault", "injected", "recovered", "p50 s", "max s", "lost", "wrong")
        for name in dict.fromkeys(fault.name for fault in self.faults):
            table.add_row(name, *_cells([fault for fault in self.faults if fault.name == name]))
        table.add_section()
        table.add_row("all", *_cells(self.faults))
        return table


def _cells(faults: Sequence[Fault]) -> Iterator[str]:
    times = [fault.seconds for fault in faults if fault.seconds is not None]
    yield from (str(len(faults)), str(len(times)))
    yield from (f"{median(times):.1f}", f"{max(times):.1f}") if times else ("", "")
    yield from (str(sum(fault.lost for fault in faults)), str(sum(fault.wrong for fault in faults)))


def plan(count: int, seed: int, *, has_small_disk: bool, only: str = "") -> list[Kind]:
    """`count` faults: each kind once where possible, then more of those that end soon."""
    random = Random(seed)
    possible = [
        kind
        for kind in KINDS
        if (has_small_disk or not kind.needs_disk) and any(word in kind.name for word in only.split(","))
    ]
    once = random.sample(possible, len(possible)) if count >= len(possible) else []
    more = random.choices(possible, [kind.weight for kind in possible], k=count - len(once))
    planned = [*once, *more]
    random.shuffle(planned)
    return planned


class Matrix:
    """Injects faults into a world that is fed throughout."""

    def __init__(self, world: World, stream: Stream, seed: int, seconds: float, told: Callable[[str], None]) -> None:
        self._world = world
        self._stream = stream
        self._harm = Harm(world, Random(seed), seconds)
        self._told = told
        self._judge = Judge(world.reader, PREFIX, world.host)
        self._first = dict.fromkeys(FED, 0)
        """By cluster, the first sequence of the query's present run."""
        self.result = Result()

    def run(self, kinds: Sequence[Kind]) -> Result:
        """Inject the faults in turn.

        If the loop does not recover, it gets a new checkpoint, and the next fault goes on. If even that does not help,
        the run ends.
        """
        self._settle("at the beginning", time.monotonic(), begins_anew=True)
        for number, kind in enumerate(kinds, 1):
            time.sleep(self._harm.random.uniform(0, _LONGEST_WAIT_SECONDS))
            try:
                seconds, faulty = self._injected(kind)
            except AssertionError as error:
                self.result.complaints.append(f"{number}. {kind.name}: {error}")
                self._told(f"{number:4} {kind.name}: {error}")
                self.result.faults.append(Fault(kind.name))
                if not self._is_repaired(kind):
                    break
                continue
            self.result.faults.append(Fault(kind.name, seconds, len(faulty.lost), len(faulty.wrong)))
            self._complain(f"{number}. {kind.name}", faulty)
            self._told(f"{number:4} {kind.name}: {self._came_of_it(seconds, faulty)}")
        return self.result

    def _injected(self, kind: Kind) -> tuple[float, Faulty]:
        """Inject a fault; returns the seconds until the loop had recovered, and the faults found then."""
        kind.inject(self._harm)
        over = time.monotonic()
        if kind.loses_checkpoint:
            self._begin_anew()
        if kind.loses_checkpoint or kind.loses_offsets:
            self._judge.look_away()
        # Spark leaves out records that a re-created topic got before Spark saw that it was re-created.
        seconds, faulty = self._settle(kind.name, over, is_repeated=kind.loses_offsets)
        if self._judge.is_blind:
            later = self._reset(kind)
            faulty = Faulty((*faulty.lost, *later.lost), (*faulty.wrong, *later.wrong))
        return seconds, faulty

    def _reset(self, kind: Kind) -> Faulty:
        self._begin_anew()
        self._world.reset()
        return self._settle(f"reset after {kind.name}", time.monotonic(), begins_anew=True)[1]

    def _is_repaired(self, kind: Kind) -> bool:
        """End a fault from which the loop did not recover, and let the query begin a new run."""
        try:
            self._judge.look_away()
            self._judge.forgive(self._reset(kind))
        except AssertionError as error:
            self.result.complaints.append(f"the run ends: {error}")
            return False
        return True

    def _came_of_it(self, seconds: float, faulty: Faulty) -> str:
        remedies, self._world.remedies = self._world.remedies, []
        self.result.complaints += [f"checkpoint {each}" for each in remedies if each.endswith("failed")]
        after = f" after checkpoint {' and '.join(remedies)}" if remedies else ""
        return f"{seconds:.1f} s{after}, lost {len(faulty.lost)}, wrong {len(faulty.wrong)}"

    def _begin_anew(self) -> None:
        """The query reads everything again."""
        self._first = {cluster: 1 + max(self._levels(cluster), default=0) for cluster in FED}

    def _complain(self, where: str, faulty: Faulty) -> None:
        self.result.complaints += [f"{where}: {each}" for each in (*faulty.lost, *faulty.wrong)]
        self._judge.forgive(faulty)

    def _levels(self, cluster: str) -> dict[int, float]:
        """The factors of this run by sequence."""
        decided = (r.data for r in self._world.reader.of[_THROTTLE] if r.key == cluster and r.value)
        return {d["sequence"]: d["factor"] for d in decided if d["sequence"] >= self._first[cluster]}

    def _settle(
        self, what: str, since: float, *, is_repeated: bool = False, begins_anew: bool = False
    ) -> tuple[float, Faulty]:
        """Publish a last reading of each cluster, wait until it is decided, shown and carried out, then judge.

        Args:
            what: the awaited state, for an error.
            since: the end of the harm.
            is_repeated: whether to repeat the reading, as collectors do.
            begins_anew: whether the query begins a new run.
        """
        self._world.reader.read()
        collected = len(self._world.reader.of[_LOG_DIRS])
        probe = self._stream.probe()

        def is_done() -> bool:
            time.sleep(_PAUSE_SECONDS)
            if is_repeated:
                self._stream.say_again()
            return self._is_done(probe, collected)

        try:
            eventually(f"{what}: decided, shown and carried out", is_done)
            seconds = time.monotonic() - since
            faulty = self._judged(begins_anew=begins_anew)
        finally:
            self._stream.go_on()
        return seconds, faulty

    def _is_done(self, probe: dict[str, float], collected: int) -> bool:
        self._world.reader.read()
        return (
            all(_is_close(self._in_force(cluster), factor) for cluster, factor in probe.items())
            and self._is_shown(probe)
            and self._is_carried_out("a")
            and any(record.key == OWN for record in self._world.reader.of[_LOG_DIRS][collected:])
        )

    def _is_shown(self, probe: dict[str, float]) -> bool:
        shown = dict(
            line.removeprefix('headgate_throttle_factor{cluster="').split('"} ')
            for line in self._world.page().splitlines()
            if line.startswith("headgate_throttle_factor{")
        )
        return all(cluster in shown and _is_close(float(shown[cluster]), factor) for cluster, factor in probe.items())

    def _in_force(self, cluster: str) -> float | None:
        levels = self._levels(cluster)
        return levels[max(levels)] if levels else None

    def _is_carried_out(self, cluster: str) -> bool:
        decided = [r.data for r in self._world.reader.of[_THROTTLE] if r.key == cluster and r.value]
        last = max(decided, key=lambda d: int(d["sequence"]))["decision_id"]
        audit = (r.data for r in reversed(self._world.reader.of["audit"]))
        return any(d.get("decision_id") == last and "outcome" in d for d in audit)

    def _judged(self, *, begins_anew: bool) -> Faulty:
        """Compare until the records of the present batch are written; a blind judge needs a new run."""
        began = time.monotonic()
        faulty = self._judge.look()
        while (
            (self._judge.is_blind or faulty.lost or faulty.wrong != tuple(self._judge.wrong))
            and (begins_anew or not self._judge.is_blind)
            and time.monotonic() - began < _TOLD_SECONDS
        ):
            time.sleep(0.3)
            faulty = self._judge.look()
        return Faulty(faulty.lost, (*faulty.wrong, *self._out_of_order()))

    def _out_of_order(self) -> Iterator[str]:
        for cluster in FED:
            levels = self._levels(cluster)
            # A reading of the actuator may come before the first level; the gate then begins open.
            if wrong := out_of_order([levels[n] for n in sorted(levels)], [1.0, *self._stream.fed[cluster]]):
                yield f"{cluster}: {wrong}"


def _is_close(one: float | None, other: float) -> bool:
    return one is not None and abs(one - other) < 2e-6


def main() -> int:
    """Run the matrix."""
    options = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    options.add_argument("--count", type=int, default=100, help="how many faults")
    options.add_argument("--seed", type=int, default=1, help="of faults, moments and what is fed")
    options.add_argument("--seconds", type=float, default=20.0, help="how long a fault lasts at most")
    options.add_argument("--only", default="", help="only kinds whose name has one of these words, with commas")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running
    folder, console = Path(tempfile.mkdtemp(prefix="headgate-faults-")), Console()
    result = run(folder, given.count, given.seed, given.seconds, console.print, given.only)
    for complaint in result.complaints:
        console.print(complaint, markup=False)
    console.print(result.table)
    console.print(f"seed {given.seed}, logs in {folder}")
    return 1 if result.complaints else 0


def run(folder: Path, count: int, seed: int, seconds: float, told: Callable[[str], None], only: str = "") -> Result:
    """Start a world and run a plan in it."""
    ensure_jars(spark_group(), default_cache_dir())
    with World(folder, ensure_jars("kafka", default_cache_dir())) as world:
        if not world.has_small_disk:
            told("left out, as not to be had here: a full disk (mounting one takes root)")
        kinds = plan(count, seed, has_small_disk=world.has_small_disk, only=only)
        with Stream(world.kafka.bootstrap_servers, seed) as stream:
            return Matrix(world, stream, seed, seconds, told).run(kinds)


if __name__ == "__main__":
    sys.exit(main())
