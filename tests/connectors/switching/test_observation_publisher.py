"""What is published of what is read: changes at once, the rest now and then, and a failure as what it is."""

from collections.abc import Iterator
from typing import Any

import pytest

from connectors.switching import publisher
from connectors.switching.publisher import ObservationPublisher
from connectors.zookeeper.json_znodes import ZnodeError
from policies.observations import Outcome, Reading
from policies.switching.readings import (
    SwitchBrokers,
    SwitchCluster,
    SwitchInventory,
    SwitchInventoryPart,
    SwitchPrecheck,
    SwitchRegistry,
)
from policies.switching.state import SwitchProgress

OK: dict[str, Any] = {"cluster": "c1", "outcome": Outcome.OK}


class World:
    """One BookKeeper cluster and brokers that come and go, in a time of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 100.0
        self.live: tuple[str, ...] = ("b1",)
        self.registry: SwitchRegistry | ZnodeError = SwitchRegistry(**OK, bootstrap="first")
        self.inventory_outcomes = [Outcome.OK]
        self.published: list[Reading] = []
        monkeypatch.setattr(publisher, "time", self)
        parts: Any = self
        self.publisher = ObservationPublisher("c1", parts, parts, self.published.append, "default")

    def monotonic(self) -> float:
        return self.seconds

    def publish(self, *, unchanged_too: bool = False, after_seconds: float = 0.0) -> list[str]:
        """The kinds of what is published now."""
        self.seconds += after_seconds
        self.published.clear()
        self.publisher.publish(unchanged_too=unchanged_too)
        return [type(reading).__name__ for reading in self.published]

    def read(self, *, contested_too: bool = False) -> SwitchRegistry:
        if isinstance(self.registry, ZnodeError):
            raise self.registry
        return self.registry

    def read_progress(self) -> SwitchProgress | None:
        return None

    def brokers(self) -> SwitchBrokers:
        return SwitchBrokers(**OK, brokers=self.live)

    def clusters(self) -> Iterator[SwitchCluster]:
        yield SwitchCluster(**OK, name="old", took_ms=int(self.seconds))

    def precheck(self, source: str, target: str, bootstrap: str) -> SwitchPrecheck:
        return SwitchPrecheck(**OK, source=source, target=target, digest=bootstrap)

    def inventory(
        self, bootstrap: str, source: str = "", target: str = "", *, valid_ms: int = 0, moved_too: bool = False
    ) -> Iterator[Reading]:
        yield SwitchInventoryPart(**OK, inventory=bootstrap, part=0)
        for outcome in self.inventory_outcomes:
            yield SwitchInventory(cluster="c1", outcome=outcome, inventory=bootstrap, target=target or source)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


ALL = ["SwitchRegistry", "SwitchBrokers", "SwitchCluster"]


def test_all_is_published_at_first_and_then_what_changed(world: World) -> None:
    assert world.publish() == ALL
    assert world.publish(after_seconds=2) == [], "how long a reading took says nothing new"
    world.live = ("b1", "b2")
    assert world.publish(after_seconds=2) == ["SwitchBrokers"]


def test_what_has_not_changed_is_published_every_15_seconds_or_when_it_matters(world: World) -> None:
    world.publish()
    assert world.publish(after_seconds=14) == []
    assert world.publish(after_seconds=1) == ALL
    assert world.publish(unchanged_too=True) == ALL


def test_a_new_lease_begins_with_everything(world: World) -> None:
    world.publish()
    world.publisher.publish_all_next()
    assert world.publish() == ALL


def test_a_registry_that_cannot_be_read_is_an_observation_too(world: World) -> None:
    world.publish()
    world.registry = ZnodeError("no ZooKeeper")
    assert world.publish() == ["SwitchRegistry"]
    (reading,) = world.published
    assert isinstance(reading, SwitchRegistry)
    assert (reading.outcome, reading.detail) == (Outcome.ERROR, "no ZooKeeper")


def test_a_precheck_rests_on_the_bootstrap_of_the_registry_as_it_was_last_read(world: World) -> None:
    world.publish()
    world.registry = ZnodeError("no ZooKeeper")
    world.publish()
    world.publisher.publish_precheck("old", "new")
    report = world.published[-1]
    assert isinstance(report, SwitchPrecheck)
    assert report.digest == "first"


def test_before_the_registry_was_read_the_settings_name_the_bootstrap(world: World) -> None:
    world.publisher.publish_precheck("old", "new")
    (report,) = world.published
    assert isinstance(report, SwitchPrecheck)
    assert report.digest == "default"


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.TIMEOUT])
def test_an_inventory_says_whether_it_is_complete(world: World, outcome: Outcome) -> None:
    world.inventory_outcomes = [outcome]
    assert world.publisher.publish_inventory("old", "new") is (outcome is Outcome.OK)
    assert [type(each).__name__ for each in world.published] == ["SwitchInventoryPart", "SwitchInventory"]
