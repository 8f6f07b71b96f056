"""Processor time of a step of each policy, as the query takes it: state decoded, stepped, state and records encoded.

Throttle has 300 brokers of four volumes, bookie disks 500 bookies and 2,000 namespaces, isolation 5,000 bookies and
2,000 namespaces in 100 groups, sessions 300 brokers of 30 bundles, switching 20,000 ledgers. Milliseconds, the median.
`passes` counts the files and functions of Headgate that one log-dir reading passes, ten calls deep.

    python bench/steps.py
    python bench/steps.py --against v0.1.0 --only throttle
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from bench.turns import ROOT, Figures, run
from policies.bookie_disks import BookieDisksSettings
from policies.bookie_disks.readings import BookieDir, BookieDisks
from policies.bookie_readings import (
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    NamespaceAffinity,
    RackInfo,
)
from policies.isolation.settings import IsolationSettings
from policies.observations import Observation, Outcome, Reading
from policies.sessions import Ownerships, SessionsSettings, ZkSession
from policies.sessions.readings import BROKERS, NAMESPACES, OwnedNode, SessionState
from policies.switching.ledgers import Ledger, LedgerKind, LedgerState
from policies.switching.policy import SwitchingPolicy
from policies.switching.readings import LedgerOutcome, SwitchLedger
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchingState, SwitchStage
from policies.throttle import LogDirs, ThrottleSettings
from policies.throttle.readings import VolumeReading
from policies.units import from_millis, to_millis
from policies.wire import ObservedRecord, observation_event
from streaming.host import PolicyHost
from streaming.key_state import NEVER_STEPPED, decode, encode
from streaming.transition import reconcile
from tests.policies.switching.world import Ref, World, few

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
GB = 10**9
DEEPEST = 10
OK: dict[str, Any] = {"cluster": "c", "outcome": Outcome.OK}


class Key:
    """One key of the query."""

    def __init__(self, policy: str, settings: Any) -> None:
        self._policy = policy
        self._host = PolicyHost({policy: settings})
        self._state: bytes | None = None

    def step(self, second: float, readings: Iterable[Reading]) -> float:
        """Step the key with a batch of readings; return milliseconds of processor."""
        now = START + timedelta(seconds=second)
        batch = [Observation(f"{second}/{number}", now, reading) for number, reading in enumerate(readings)]
        began = time.process_time()
        before = None if self._state is None else decode(self._state)
        stepped = self._host.step(self._policy, "c", before, batch, now)
        self._state = encode(stepped.key_state)
        taken = 1000 * (time.process_time() - began)
        assert stepped.failure is None, stepped.failure
        return taken


def throttle() -> Figures:
    """One reading a batch, and twenty, once the trends are full."""
    limits = {"soft": {"available_bytes_below": "5GB"}, "hard": {"available_bytes_below": "1GB"}}
    key = Key("throttle", ThrottleSettings.model_validate(limits))

    def read(poll: int, broker: int) -> LogDirs:
        free = 50 * GB - poll * 10**6 + broker
        volumes = tuple(VolumeReading(log_dir=f"/{d}", total_bytes=100 * GB, usable_bytes=free) for d in "abcd")
        return LogDirs(**OK, broker=broker, volumes=volumes)

    for poll in range(13):
        key.step(10 * poll, [read(poll, broker) for broker in range(300)])
    one = [key.step(130 + n / 30, [read(13, n)]) for n in range(100)]
    twenty = [key.step(140 + n, [read(14, 20 * n + each) for each in range(20)]) for n in range(15)]
    return {"1 reading": statistics.median(one), "20 readings": statistics.median(twenty)}


def bookie_disks() -> Figures:
    """A reading of one bookie, and one of all namespaces."""
    key, bookies = Key("bookie_disks", BookieDisksSettings()), [f"bk{n}:3181" for n in range(500)]
    groups = {f"g{n}": {b: RackInfo(rack="/r1") for b in bookies[25 * n : 25 * n + 25]} for n in range(20)}
    of = {f"t/{n}": NamespaceAffinity(primary=(f"g{n % 20}",), ensemble_size=3, write_quorum=2) for n in range(2000)}

    def read(second: float, number: int) -> BookieDisks:
        free = 60 * GB - round(second * 10**6) - number * GB // 20
        dirs = tuple(BookieDir(dir=f"/data/{d}", total_bytes=100 * GB, usable_bytes=free) for d in "abcd")
        return BookieDisks(**OK, bookie=bookies[number], dirs=dirs)

    affinity = BookieAffinity(**OK, namespaces=of)
    key.step(0, [BookieRacks(**OK, groups=groups), affinity])
    for poll in range(13):
        key.step(10 * poll, [read(10 * poll, bookie) for bookie in range(500)])
    one = [key.step(130 + n / 10, [read(130 + n / 10, n)]) for n in range(100)]
    return {
        "1 bookie": statistics.median(one),
        "2,000 namespaces": min(key.step(150 + n, [affinity]) for n in range(5)),
    }


def isolation() -> Figures:
    """Equal readings, a bookie that is gone, and a tree that is gone."""
    key, bookies = Key("isolation", IsolationSettings()), [f"bk-{n:04}:3181" for n in range(5000)]
    groups: dict[str, dict[str, RackInfo]] = {f"g{n}": {} for n in range(100)}
    for number, bookie in enumerate(bookies):
        groups[f"g{number % 100}"][bookie] = RackInfo(rack="/r1")
    of = {f"t/{n}": NamespaceAffinity(primary=(f"g{n % 100}",), ensemble_size=2) for n in range(2000)}

    def read(registered: list[str]) -> Bookies:
        writable = tuple(BookieRegistration(bookie=b, session="0x1", czxid=n) for n, b in enumerate(registered))
        return Bookies(**OK, writable=writable, known=tuple(bookies))

    racks = BookieRacks(**OK, groups=groups)
    key.step(0, [read(bookies), racks, BookieAffinity(**OK, namespaces=of)])
    return {
        "equal readings": min(key.step(second, [read(bookies), racks]) for second in (5, 10, 15)),
        "1 bookie gone": max(key.step(second, [read(bookies[1:]), racks]) for second in (20, 30)),
        "all bookies gone": max(key.step(second, [read([]), racks]) for second in (40, 50, 111)),
    }


def sessions() -> Figures:
    """Equal readings, all sessions lost, all back, and all bundles owned again."""
    key, names = Key("sessions", SessionsSettings()), [f"broker-{n:03}:8080" for n in range(300)]
    connected, expired = SessionState.CONNECTED, SessionState.EXPIRED

    def read(session: int, state: SessionState = connected, *, owned: bool = True) -> list[Reading]:
        ids = {name: f"0x{session}{n:03}" for n, name in enumerate(names)}
        paths = {BROKERS: [(f"/{name}", name) for name in names]}
        paths[NAMESPACES] = [(f"/t/ns-{name}/0x{b:08x}_0x{b + 1:08x}", name) for name in names for b in range(30)]
        trees = (
            Ownerships(cluster="c", tree=tree, nodes=tuple(
                OwnedNode(path=tree + path, owner_member=name, session=ids[name], version=0) for path, name in nodes
            ) if owned else ())
            for tree, nodes in paths.items()
        )  # fmt: skip
        of = (ZkSession(cluster="c", member=n, session=ids[n], state=state, timeout_ms=30_000) for n in names)
        return [*of, *trees]

    key.step(0, read(1))
    return {
        "equal readings": min(key.step(second, read(1)) for second in (5, 10, 15, 20)),
        "all lost": key.step(25, read(1, expired, owned=False)),
        "all back": key.step(35, read(2)[: len(names)]),
        "absent bundles read": key.step(36, read(2, owned=False)),
        "owned again": key.step(41, read(2)),
    }


def switching(ledgers: int = 20_000) -> Figures:
    """Copied ledgers while a switch copies 200 of all its ledgers at once."""
    world = World(few(copy_concurrency=200))
    for path in (f"/managed-ledgers/t/ns/persistent/topic-{number}/cursor" for number in range(ledgers)):
        world.refs[path] = Ref(LedgerKind.CURSOR, world.clusters["old"].allocate(path, world.now_ms), path)
    world.to(SwitchStage.BUILD)
    policy, encoded = SwitchingPolicy("c", SwitchingSettings()), msgspec.msgpack.encode(world.state)
    now, readings = from_millis(world.now_ms), list[Reading]()
    for op, task in ((order.op, order.task) for order in world.orders if order.task is not None):
        read = Ledger(
            ledger_id=task.ledger_id, state=LedgerState.CLOSED, last_entry_id=0, length_bytes=42,
            entries_digest="d", created_ms=1,
        )  # fmt: skip
        copied: dict[str, Any] = {"result": LedgerOutcome.COPIED, "source": read, "target": read}
        readings.append(SwitchLedger(**OK, ledger_id=task.ledger_id, op=op, **copied))

    def step(results: int) -> float:
        assert len(readings) >= results
        batch = [Observation(str(number), now, reading) for number, reading in enumerate(readings[:results])]
        began = time.process_time()
        stepped = policy.step(msgspec.msgpack.decode(encoded, type=SwitchingState), batch, now)
        msgspec.msgpack.encode(stepped.state)
        return 1000 * (time.process_time() - began)

    return {f"{results} copied": statistics.median(step(results) for _ in range(10)) for results in (1, 16, 200)}


def passes() -> Figures:
    """A log-dir reading that changes nothing, and one that changes the factor."""
    host = PolicyHost({"throttle": ThrottleSettings.model_validate({"hard": {"available_bytes_below": "1GB"}})})
    key, figures = ("throttle", "c"), Figures()
    state: bytes | None = None
    for number, (what, free) in enumerate((("", 50), ("", 50), ("changing nothing", 50), ("changing the factor", 0))):
        now = START + timedelta(seconds=5 * number)
        volumes = (VolumeReading(log_dir="/a", total_bytes=100 * GB, usable_bytes=free * GB),)
        value = observation_event(LogDirs(**OK, broker=1, volumes=volumes), id=f"{number}", source="bench", time=now)
        record = ObservedRecord("h.observed.log-dirs", 0, number, to_millis(now), value)
        passed, depth = set[tuple[str, str]](), 0

        def note(frame: Any, event: str, _: object, passed: set[tuple[str, str]] = passed) -> None:
            nonlocal depth
            code = frame.f_code
            if str(ROOT / "policies") in code.co_filename or str(ROOT / "streaming") in code.co_filename:
                depth += {"call": 1, "return": -1}.get(event, 0)
                if event == "call" and depth <= DEEPEST and code.co_name.isidentifier():
                    passed.add((code.co_filename, code.co_qualname))

        sys.setprofile(note)
        taken = reconcile(host, "h", key, None if state is None else decode(state), [record], to_millis(now))
        state = encode(taken.key_state or NEVER_STEPPED)
        sys.setprofile(None)
        if what:
            figures |= {f"{what}, files": len({file for file, _ in passed}), f"{what}, functions": len(passed)}
    return figures


MEASURED: dict[str, Callable[[], Figures]] = {
    each.__name__: each for each in (throttle, bookie_disks, isolation, sessions, switching, passes)
}


def measure(given: argparse.Namespace) -> Figures:
    """Measure what is asked for."""
    unit = {"passes": ""}
    return {
        f"{name}, {what}{unit.get(name, ' ms')}": each for name in given.only for what, each in MEASURED[name]().items()
    }


if __name__ == "__main__":
    run(measure, only=([*MEASURED], "some of them"))
