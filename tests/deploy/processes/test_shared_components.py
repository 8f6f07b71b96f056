"""Parts that run only for what this process holds: begun, stopped before another has it, and never twice."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import pytest
from prometheus_client import CollectorRegistry, Gauge
from structlog.testing import capture_logs

from connectors.component import Component
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import PartitionSettings
from connectors.membership import Group, PartitionLease, PartitionMetrics
from deploy.processes import shared_components as shared_parts
from deploy.processes.shared_components import Held, SharedComponents, Work, passing_registry
from policies.units import UserError

SECONDS = 30.0
NAMES = {0: "a", 1: "b", 2: "c"}


class Member:
    """A membership that is told what it holds by the test."""

    def __init__(self, on_change: Callable[[frozenset[int] | None], None]) -> None:
        self._on_change = on_change
        self._assignments: list[frozenset[int] | None] = []
        self.lease = PartitionLease(5.0)
        self.joined = False
        self.left = False
        self.taken = threading.Event()

    @property
    def problem(self) -> str | None:
        return None if self.joined else "has not been told yet"

    def assign(self, *shares: int) -> None:
        """Have it hold these; returns when what it holds no longer has stopped."""
        self._await_handled(frozenset(shares))

    def lose(self) -> None:
        """Have the membership end; returns when all work has stopped."""
        self._await_handled(None)

    def _await_handled(self, assigned: frozenset[int] | None) -> None:
        self.taken.clear()
        self._assignments.append(assigned)
        assert self.taken.wait(SECONDS)

    def step(self) -> None:
        while self._assignments:
            assigned = self._assignments.pop(0)
            shares = assigned or frozenset()
            self.lease.remove(self.lease.held - shares)
            self.lease.add(shares)
            self.joined = True
            self._on_change(assigned)
            self.taken.set()
        threading.Event().wait(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.left = True


class Bench:
    """Work of three clusters, each a unit of its own; what happens to its parts is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, units: Callable[[Held], Mapping[str, Held]]) -> None:
        self.said: list[str] = []
        self.fails: UserError | None = None
        self.failure: BaseException | None = None
        self.member: Member | None = None
        self.made = threading.Event()
        self.registry = CollectorRegistry()
        monkeypatch.setattr(shared_parts, "Membership", self._joined)
        work = Work("toys", Group("g", "t"), lambda shares: frozenset(NAMES[s] for s in shares), units, self._opened)
        connection = KafkaConnection(bootstrap_servers="127.0.0.1:1")
        self.shared = SharedComponents(connection, work, PartitionSettings(), PartitionMetrics(self.registry))
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.made.wait(SECONDS)

    def end(self) -> None:
        self.stop.set()
        self.ended()

    def ended(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def held(self) -> Member:
        assert self.member is not None
        return self.member

    def metric(self, name: str) -> float | None:
        return self.registry.get_sample_value(name, {"part": "toys"})

    def _joined(self, _connection: Any, _group: Any, _settings: Any, on_change: Any) -> Member:
        self.member = Member(on_change)
        self.made.set()
        return self.member

    def _run(self) -> None:
        try:
            self.shared.run(self.stop)
        except BaseException as error:
            self.failure = error

    @contextmanager
    def _opened(self, name: str, held: Held, _lease: PartitionLease) -> Iterator[Sequence[Component]]:
        self.said.append(f"{name} opened for {','.join(sorted(held))}")
        yield [Component(f"{name}-{number}", self._part(f"{name}-{number}")) for number in (1, 2)]
        self.said.append(f"{name} closed")

    def _part(self, name: str) -> Callable[[threading.Event], None]:
        def run(stop: threading.Event) -> None:
            if self.fails is not None:
                raise self.fails
            assert stop.wait(SECONDS)
            self.said.append(f"{name} stopped")

        return run


def each_by_itself(held: Held) -> Mapping[str, Held]:
    return {name: frozenset({name}) for name in sorted(held)}


def all_together(held: Held) -> Mapping[str, Held]:
    return {"all": held} if held else {}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(monkeypatch, each_by_itself)
    yield made
    made.end()


def test_what_is_held_runs_and_what_is_given_up_has_stopped_before_another_has_it(bench: Bench) -> None:
    bench.held().assign(0, 1)
    assert bench.said == ["a opened for a", "b opened for b"]
    bench.held().assign(1, 2)
    assert bench.said[2:] == ["a-1 stopped", "a-2 stopped", "a closed", "c opened for c"]


def test_who_holds_nothing_is_ready_and_runs_nothing(bench: Bench) -> None:
    assert bench.shared.ready() == "has not been told yet"
    bench.held().assign()
    assert (bench.shared.ready(), bench.said) == (None, [])


def test_a_unit_that_is_to_do_other_things_is_made_anew_and_any_other_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, all_together)
    bench.held().assign(0, 1)
    bench.held().assign(1, 0)
    assert bench.said == ["all opened for a,b"]
    bench.held().assign(1)
    assert bench.said[1:] == ["all-1 stopped", "all-2 stopped", "all closed", "all opened for b"]
    bench.end()


def test_at_the_end_all_stops_while_it_is_a_member_still_and_then_it_leaves(bench: Bench) -> None:
    bench.held().assign(0)
    assert not bench.held().left
    bench.end()
    assert bench.said[1:] == ["a-1 stopped", "a-2 stopped", "a closed"]
    assert bench.held().left


def test_a_part_that_fails_ends_it_all_and_its_error_is_raised(bench: Bench) -> None:
    bench.fails = UserError("no such cluster")
    bench.held().assign(0, 1)
    bench.ended()
    assert str(bench.failure) == "no such cluster"
    assert bench.held().left


def test_only_what_kafka_has_assigned_is_logged_and_not_that_others_work_while_it_is_away(bench: Bench) -> None:
    with capture_logs() as logs:
        bench.held().assign(0)
        bench.held().lose()
        assert bench.said[-1] == "a closed"
        bench.held().assign(0)
        bench.held().lose()
        bench.held().assign()
    share, stands_by = "toys: this process works for a", "toys: stands by, other processes have all the work"
    assert [each["event"] for each in logs] == [share, share, stands_by]


def test_it_says_what_it_holds_and_that_it_waits_for_kafka_to_confirm_it(bench: Bench) -> None:
    bench.held().assign(0, 1)
    bench.held().assign(1)
    assert bench.metric("headgate_shares_held") == 1
    assert bench.metric("headgate_share_lease_valid") == 0


def test_the_metrics_of_what_comes_and_goes_are_shown_as_long_as_it_is_there() -> None:
    registry = CollectorRegistry(auto_describe=True)
    for value in (1.0, 2.0):
        with passing_registry(registry) as own:
            Gauge("toys", "Toys.", registry=own).set(value)
            assert registry.get_sample_value("toys") == value
        assert registry.get_sample_value("toys") is None
