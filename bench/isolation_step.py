"""CPU seconds of a step of the isolation policy, at 5,000 bookies and 2,000 namespaces, against any commit.

A host steps the policy as the query does: state decoded, stepped, state and records encoded. `own` gives
each namespace groups of its own, `shared` a hundred groups to twenty namespaces each, `one` a single group to all.
Vanished is a tree that is gone in one reading, and in the one that confirms it.

    python bench/isolation_step.py
    python bench/isolation_step.py --against 5e721fb
"""

import argparse
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from bench.turns import Figures, run
from policies.bookie_readings import (
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    NamespaceAffinity,
    RackInfo,
)
from policies.isolation import IsolationSettings
from policies.observations import Observation, Outcome, Reading
from streaming.host import PolicyHost
from streaming.key_state import decode, encode

BOOKIES, NAMESPACES = 5_000, 2_000
GROUPS: Mapping[str, int] = {"own": NAMESPACES, "shared": 100, "one": 1}
_START = datetime(2026, 1, 1, tzinfo=UTC)


class Cluster:
    """A cluster at seconds after a start, and a host that has its state."""

    def __init__(self, group_count: int) -> None:
        self.bookies = [f"bk-{n:04}.bookies.example.org:3181" for n in range(BOOKIES)]
        self.groups: dict[str, dict[str, RackInfo]] = {f"g{n}": {} for n in range(group_count)}
        for n, bookie in enumerate(self.bookies):
            self.groups[f"g{n % group_count}"][bookie] = RackInfo(rack="/r1")
        self.namespaces = {
            f"tenant-{n % 50}/namespace-{n}": NamespaceAffinity(primary=(f"g{n % group_count}",), ensemble_size=2)
            for n in range(NAMESPACES)
        }
        self._host = PolicyHost({"isolation": IsolationSettings()})
        self._remembered: bytes | None = None

    def step(self, second: float, *readings: Reading) -> float:
        """Return the CPU seconds of a step with these readings, which do not depend on other load."""
        now = _START + timedelta(seconds=second)
        seen = [Observation(f"{second}/{n}", now, reading) for n, reading in enumerate(readings)]
        began = time.process_time()
        before = None if self._remembered is None else decode(self._remembered)
        stepped = self._host.step("isolation", "c", before, seen, now)
        self._remembered = encode(stepped.key_state)
        took = time.process_time() - began
        assert stepped.failure is None, stepped.failure
        return took

    def registered(self, bookies: list[str]) -> Bookies:
        """Return a reading with these writable bookies."""
        writable = tuple(BookieRegistration(bookie=b, session="0x1", czxid=n) for n, b in enumerate(bookies))
        return Bookies(cluster="c", outcome=Outcome.OK, writable=writable, known=tuple(self.bookies))

    def racks(self, groups: dict[str, dict[str, RackInfo]]) -> BookieRacks:
        """Return a reading with these groups."""
        return BookieRacks(cluster="c", outcome=Outcome.OK, groups=groups)


def measured(group_count: int) -> dict[str, float]:
    """Return the seconds of each kind of step."""
    cluster = Cluster(group_count)
    affinity = BookieAffinity(cluster="c", outcome=Outcome.OK, namespaces=cluster.namespaces)
    all_bookies, racks = cluster.registered(cluster.bookies), cluster.racks(cluster.groups)
    one_gone, none = cluster.registered(cluster.bookies[1:]), cluster.registered([])
    seconds = {"first": cluster.step(0, all_bookies, racks, affinity)}
    seconds["nothing new"] = min(cluster.step(second, all_bookies, racks) for second in (5, 10, 15))
    seconds["one bookie gone"] = cluster.step(20, one_gone, racks)
    seconds["confirmed"] = cluster.step(30, one_gone, racks)
    seconds["and back"] = cluster.step(35, all_bookies, racks)
    vanished = [cluster.step(40, none, racks), cluster.step(50, none, racks), cluster.step(111, none, racks)]
    seconds["tree vanished, longest of three"] = max(vanished)
    cluster.step(116, all_bookies, racks)
    without = [cluster.step(second, all_bookies, cluster.racks({})) for second in (120, 130, 141)]
    seconds["/bookies vanished, longest of three"] = max(without)
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", choices=GROUPS, nargs="+", default=[*GROUPS], help="layouts")
    run(__doc__ or "", measure, parser)


def measure(given: argparse.Namespace) -> Figures:
    """Measure all kinds of steps in each layout."""
    return {
        f"isolation step, groups {layout}: {what}, s": seconds
        for layout in given.groups
        for what, seconds in measured(GROUPS[layout]).items()
    }


if __name__ == "__main__":
    main()
