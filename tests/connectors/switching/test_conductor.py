"""What a conductor does with its lease, with orders, and with what it cannot do: turn by turn, everything at once."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from datetime import timedelta
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from connectors.switching.answers import Answers
from connectors.switching.conductor import Conductor, Hands
from connectors.switching.lease import Held
from connectors.switching.metrics import SwitchExecutorMetrics
from connectors.switching.registry import RegistryError
from connectors.switching.registry_view import DirectiveOutcome, DirectiveWritten, RegistryView
from policies.decisions import Mode
from policies.observations import Outcome, Reading
from policies.switching.decisions import SwitchDecision, SwitchVerdict
from policies.switching.readings import (
    LedgerOutcome,
    SwitchBrokers,
    SwitchCluster,
    SwitchInventory,
    SwitchLease,
    SwitchLedger,
    SwitchPrecheck,
    SwitchRegistry,
)
from tests.connectors.switching.orders import order


class AtOnce(Executor):
    """Does what is submitted before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        fn(*args, **options)
        return Future()


class World:
    """The hands of a conductor, whose orders are all carried out unless told otherwise."""

    def __init__(self) -> None:
        self.lease: Held | RegistryError | None = Held(3, "me")
        self.registry_error: RegistryError | None = None
        self.directives: list[tuple[int, str]] = []
        self.done: list[tuple[SwitchVerdict, int]] = []
        self.inventories: list[tuple[str, str]] = []
        self.during: Callable[[], None] = lambda: None
        self.published: list[Reading] = []
        self.given: list[bytes] = []
        hands = cast("Any", self)
        self.series = CollectorRegistry()
        self.inventory_outcome = Outcome.OK
        self.conductor = Conductor(
            "c1",
            Hands(
                lease=hands, registry=hands, sightings=hands, ledgers=hands, publish=self.published.append,
                answers=Answers(lambda _key, value: self.given.append(value)),
                metrics=SwitchExecutorMetrics(self.series),
            ),
            poll_interval=timedelta(0),
            inventory_interval=timedelta(hours=1),
            concurrency=2,
            default_bootstrap="old",
        )  # fmt: skip

    def turn(self, *heard: SwitchDecision) -> None:
        for each in heard:
            self.conductor.take(each)
        self.conductor.turn(AtOnce(), AtOnce())

    def is_failing(self) -> bool:
        return self.series.get_sample_value("headgate_switch_executor_failing", {"cluster": "c1"}) == 1

    def of(self, kind: type[Reading]) -> list[Any]:
        return [each for each in self.published if isinstance(each, kind)]

    # --- the lease, the registry, the sightings and the ledgers

    def renew(self) -> Held | None:
        if isinstance(self.lease, RegistryError):
            raise self.lease
        return self.lease

    def read(self) -> RegistryView:
        if self.registry_error is not None:
            raise self.registry_error
        return RegistryView(bootstrap="first")

    def write_directive(self, epoch: int, target: str) -> DirectiveWritten:
        if self.registry_error is not None:
            raise self.registry_error
        self.directives.append((epoch, target))
        return DirectiveWritten(DirectiveOutcome.WRITTEN, None)

    def brokers(self) -> SwitchBrokers:
        return SwitchBrokers(cluster="c1", outcome=Outcome.OK)

    def clusters(self) -> Iterator[SwitchCluster]:
        yield SwitchCluster(cluster="c1", outcome=Outcome.OK, name="old", took_ms=len(self.published))

    def precheck(self, source: str, target: str, bootstrap: str) -> SwitchPrecheck:
        return SwitchPrecheck(cluster="c1", outcome=Outcome.OK, source=source, target=target, digest=bootstrap)

    def inventory(self, bootstrap: str, source: str, target: str) -> Iterator[Reading]:
        assert bootstrap == "first"
        self.inventories.append((source, target))
        yield SwitchInventory(cluster="c1", outcome=self.inventory_outcome, inventory=str(len(self.inventories)))

    def carry_out(self, decision: SwitchDecision) -> SwitchLedger:
        self.done.append((decision.verdict, decision.op))
        self.during()
        return SwitchLedger(cluster="c1", outcome=Outcome.OK, ledger_id=7, op=decision.op, result=LedgerOutcome.COPIED)


COPY = SwitchVerdict.START_COPY


def test_who_holds_the_lease_says_so_and_tells_what_there_is() -> None:
    world = World()
    world.turn()
    (lease,) = world.of(SwitchLease)
    assert (lease.token, lease.holder, lease.valid_ms) == (3, "me", 60_000)
    assert [len(world.of(kind)) for kind in (SwitchRegistry, SwitchBrokers, SwitchCluster)] == [1, 1, 1]
    assert world.inventories == [("", "")]


def test_what_has_not_changed_is_not_told_again_at_once() -> None:
    world = World()
    for _ in range(3):
        world.turn()
    assert len(world.published) == 5, "lease, registry, brokers, cluster, inventory"


def test_without_the_lease_nothing_is_told_or_done() -> None:
    world = World()
    world.lease = None
    world.turn(order(COPY))
    assert (world.published, world.done) == ([], [])


@pytest.mark.parametrize(
    "changes",
    [{"lease_token": 2}, {"lease_token": 4}, {"mode": Mode.SHADOW}, {"verdict": SwitchVerdict.LEDGER}],
    ids=["an older lease", "another's lease", "shadow mode", "no order"],
)
def test_only_orders_under_its_own_lease_are_carried_out(changes: dict[str, Any]) -> None:
    world = World()
    world.turn()
    world.turn(order(changes.pop("verdict", COPY), **changes))
    assert (world.done, world.given) == ([], [])


def test_an_order_is_carried_out_once_and_answered() -> None:
    world = World()
    world.turn()
    world.turn(order(COPY), order(COPY))
    assert world.done == [(COPY, 1)]
    assert len(world.given) == 1


def test_an_order_whose_lease_was_lost_meanwhile_is_not_answered() -> None:
    world = World()
    world.turn()

    def lose() -> None:
        world.lease = Held(4, "me")
        world.conductor.turn(AtOnce(), AtOnce())

    world.during = lose
    world.turn(order(COPY))
    assert (world.done, world.given) == ([(COPY, 1)], [])


def test_an_order_outlives_a_moment_in_which_nobody_knows_who_holds_the_lease() -> None:
    world = World()
    world.turn()

    def look_away() -> None:
        world.lease = RegistryError("no ZooKeeper")
        world.conductor.turn(AtOnce(), AtOnce())
        world.lease = Held(3, "me")
        world.conductor.turn(AtOnce(), AtOnce())

    world.during = look_away
    world.turn(order(COPY))
    assert len(world.given) == 1


def directive(epoch: int) -> SwitchDecision:
    return order(
        SwitchVerdict.WRITE_DIRECTIVE, 0, subject="c1/directive", ledger=None, sequence=200 + epoch,
        args={"directive_epoch": epoch, "target": "new"},
    )  # fmt: skip


def test_what_the_registry_does_not_take_is_tried_again_and_only_the_newest_of_it() -> None:
    world = World()
    world.turn()
    world.registry_error = RegistryError("no ZooKeeper")
    world.turn(directive(1))
    world.turn(directive(2))
    assert world.directives == []
    world.registry_error = None
    world.turn()
    world.turn()
    assert world.directives == [(2, "new")]


def test_a_precheck_and_an_inventory_are_made_when_ordered() -> None:
    world = World()
    world.turn()
    args = {"source": "old", "target": "new"}
    world.turn(order(SwitchVerdict.RUN_PRECHECK, 0, subject="c1/prechecks/new", ledger=None, args=args))
    (report,) = world.of(SwitchPrecheck)
    assert (report.source, report.target, report.digest) == ("old", "new", "first")
    world.turn(order(SwitchVerdict.TAKE_INVENTORY, 0, subject="c1/inventory", ledger=None, args=args))
    assert world.inventories == [("", ""), ("old", "new")]


def test_an_unexpected_error_ends_nothing() -> None:
    world = World()
    world.turn()

    def fail() -> None:
        world.during = lambda: None
        raise RuntimeError("not thought of")

    world.during = fail
    world.turn(order(COPY, 1, 7))
    world.turn(order(COPY, 2, 7))
    assert world.done == [(COPY, 1), (COPY, 2)]
    assert len(world.given) == 1


def test_what_fails_shows_until_it_succeeds_whatever_else_does() -> None:
    world = World()
    world.inventory_outcome = Outcome.TIMEOUT
    world.turn()
    world.turn()
    assert world.is_failing(), "no inventory can be made, so a switch would wait for ever"
    world.registry_error = RegistryError("no ZooKeeper")
    world.turn(directive(1))
    world.registry_error, world.inventory_outcome = None, Outcome.OK
    world.turn()
    assert world.is_failing(), "of the inventory nothing is known yet"
    args = {"source": "old", "target": "new"}
    world.turn(order(SwitchVerdict.TAKE_INVENTORY, 0, subject="c1/inventory", ledger=None, args=args))
    assert not world.is_failing()


def test_it_runs_until_it_is_stopped_and_gives_the_lease_back() -> None:
    world, stop = World(), threading.Event()
    ended: list[str] = []
    hands = cast("Any", world)
    hands.close = lambda: ended.append("copies")
    hands.release = lambda: ended.append("lease")
    stop.set()
    world.conductor.run(stop)
    assert ended == ["copies", "lease"]
