"""The reference agent of a broker: which directive it follows, what it tells of itself, and when it closes a client."""

from threading import Event

import pytest
from kazoo.exceptions import ConnectionLoss

from connectors.switching.broker_agent import BrokerAgent
from connectors.switching.registry import Registry
from policies.observations import Reading
from policies.switching.readings import SwitchBroker
from tests.connectors.switching.orders import register_two
from tests.fakes.broker import Clients
from tests.fakes.zookeeper import Server


class World:
    """A registry with `old` active and `new` standing by, and the agent of one broker."""

    def __init__(self) -> None:
        self.server = Server()
        self.registry = Registry(self.server.session(), "c1")
        register_two(self.registry)
        self.clients, self.now = Clients(), 1000.0
        self.reports: list[SwitchBroker] = []
        self.agent = self.start()

    def start(self) -> BrokerAgent:
        session = self.server.session()
        return BrokerAgent("c1", "b1", session, self.clients, self._take, clock=lambda: self.now)

    def poll(self) -> SwitchBroker | None:
        """What one look at the registry makes it report."""
        before = len(self.reports)
        self.agent.poll_once()
        return self.reports[-1] if len(self.reports) > before else None

    def told(self) -> tuple[int, bool]:
        """Epoch, and whether the client of its target failed."""
        report = self.poll()
        assert report is not None
        return report.epoch, report.client_init_failed

    def _take(self, reading: Reading) -> None:
        assert isinstance(reading, SwitchBroker)
        self.reports.append(reading)


def test_without_a_directive_it_writes_where_the_active_cluster_is() -> None:
    world = World()
    assert world.told() == (0, False)
    assert (world.clients.opened, world.agent.writing_to) == (["old"], "old")
    assert world.reports[-1].writes == ("old",), "each once"


def test_a_directive_is_followed_once_and_acked_by_its_epoch() -> None:
    world = World()
    world.poll()
    world.registry.write_directive(2, "new")
    assert world.told() == (2, False)
    assert world.told() == (2, False)
    assert world.clients.opened == ["old", "new"]


def test_a_target_that_cannot_be_reached_is_told_tried_again_and_changes_nothing() -> None:
    world = World()
    world.poll()
    world.clients.broken = {"new"}
    world.registry.write_directive(2, "new")
    assert [world.told(), world.told()] == [(2, True), (2, True)]
    assert world.agent.writing_to == "old"
    world.clients.broken = set()
    assert world.told() == (2, False)
    assert world.agent.writing_to == "new"


@pytest.mark.parametrize("committed", [False, True])
def test_a_broker_that_starts_again_writes_to_the_target_only_and_a_commit_moves_it_nowhere(committed: bool) -> None:
    world = World()
    world.registry.write_directive(1, "new")
    if committed:
        world.registry.make_active("new", "old", None, 1)
    assert world.told() == (1, False)
    world.registry.make_active("new", "old", None, 1)
    assert world.told() == (1, False)
    assert world.clients.opened == ["new"]


def test_nothing_that_goes_wrong_ends_an_agent() -> None:
    world, stop = World(), Event()
    failures = [OSError("no Kafka"), ValueError("what?")]

    def report(reading: Reading) -> None:
        if failures:
            raise failures.pop()
        stop.set()

    BrokerAgent("c1", "b1", world.server.session(), world.clients, report, interval_seconds=0.0).run(stop)
    assert not failures


def test_an_older_directive_than_the_one_followed_is_ignored() -> None:
    """A server that lags behind, or a registry that was put back."""
    world = World()
    before = dict(world.server.tree)
    world.registry.write_directive(2, "new")
    world.poll()
    world.server.tree = before
    assert world.told() == (2, False)
    assert (world.clients.opened, world.clients.closed) == (["new"], [])


def test_a_registry_that_cannot_be_read_leaves_it_where_it_is_and_it_reports_on() -> None:
    world = World()
    world.server.away = ConnectionLoss()
    assert world.poll() is None, "it has never read anything"
    world.server.away = None
    assert world.poll() is not None
    world.server.away = ConnectionLoss()
    assert world.told() == (0, False)
    assert world.agent.writing_to == "old"


def test_reports_are_numbered_on_from_the_clock_and_never_backwards() -> None:
    world = World()
    world.poll()
    world.now = 900.0
    world.poll()
    world.now, world.agent = 2000.0, world.start()
    world.poll()
    assert [report.sequence for report in world.reports] == [1_000_000, 1_000_001, 2_000_000]


def switched() -> World:
    """It writes to `new` since epoch 2, and `old` may be closed as of that."""
    world = World()
    world.poll()
    world.registry.write_directive(2, "new")
    world.poll()
    world.registry.allow_close("old", 2)
    return world


def test_a_client_that_nobody_needs_is_closed_once() -> None:
    world = switched()
    world.clients.broken = {"old"}
    world.poll()
    world.clients.broken = set()
    world.poll()
    world.poll()
    assert world.clients.closed == ["old"], "one that does not close is tried again"


@pytest.mark.parametrize("why", ["it is read", "it is written to", "the permit is older than the directive"])
def test_a_client_that_is_needed_is_not_closed(why: str) -> None:
    world = switched()
    match why:
        case "it is read":
            world.clients.read = ("old",)
        case "it is written to":
            world.registry.write_directive(3, "old")
            world.registry.allow_close("old", 3)
        case _:
            world.registry.write_directive(3, "new")
    world.poll()
    assert world.clients.closed == []


def test_one_that_was_closed_and_opened_again_may_be_closed_again() -> None:
    world = switched()
    world.poll()
    world.registry.write_directive(3, "old")
    world.poll()
    world.registry.write_directive(4, "new")
    world.poll()
    world.registry.allow_close("old", 4)
    world.poll()
    assert world.clients.closed == ["old", "old"]
