"""Ledgers that have another id in the target: positions get id and attribution together, once, and give both back."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from kazoo.exceptions import BadVersionError, NoNodeError

from connectors.pulsar.metadata import parse_locator
from connectors.pulsar.topics import ValuePart
from connectors.switching.broker_agent import Attribution, AttributionOutcome, ReferenceZnodes
from connectors.zookeeper.session import ZooKeeperSession
from policies.switching.ledgers import LedgerKind
from tests.cases import for_each
from tests.connectors.pulsar.test_attribution import cluster_is, locator, position

PATH = "/schemas/t/n/topic"
MOVED = Attribution(AttributionOutcome.DONE, (ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID))
ALREADY = Attribution(AttributionOutcome.DONE)


@dataclass
class Znodes:
    """A ZooKeeper in memory, and the session of it."""

    data: dict[str, bytes]
    versions: dict[str, int] = field(default_factory=dict)
    connection: Any = field(default_factory=lambda: SimpleNamespace(timeout_seconds=1.0))
    others: bytes | None = None
    """Written by others just before our next write."""

    def client(self) -> "Znodes":
        return self

    def sync_async(self, path: str) -> Any:
        return _answer(path)

    def get_async(self, path: str) -> Any:
        if path not in self.data:
            raise NoNodeError
        version = self.versions.get(path, 0)
        return _answer((self.data[path], SimpleNamespace(version=version, czxid=1, mzxid=version)))

    def set_async(self, path: str, data: bytes, *, version: int) -> Any:
        if self.others is not None:
            self.data[path], self.others = self.others, None
            self.versions[path] = self.versions.get(path, 0) + 1
        if version != self.versions.get(path, 0):
            raise BadVersionError
        self.data[path] = data
        self.versions[path] = version + 1
        return _answer(SimpleNamespace(version=version + 1, czxid=1, mzxid=version + 1))

    def positions(self) -> list[tuple[int, str | None]]:
        return [(each.ledger_id, each.attribution) for each in parse_locator(PATH, self.data[PATH])]


def _answer(value: Any) -> Any:
    return SimpleNamespace(get=lambda timeout: value)


def named(*positions: tuple[int, str | None]) -> Znodes:
    """A locator of these ledgers."""
    held = [position(ledger_id, at, *cluster_is(owner)) for at, (ledger_id, owner) in enumerate(positions)]
    return Znodes({PATH: locator(*held)})


def promote(znodes: Znodes) -> Attribution:
    references = ReferenceZnodes(cast("ZooKeeperSession", znodes))
    return references.attribute([PATH], LedgerKind.SCHEMA, 7, {"old", None}, "new", new_id=99)


def revert(znodes: Znodes) -> Attribution:
    references = ReferenceZnodes(cast("ZooKeeperSession", znodes))
    return references.attribute([PATH], LedgerKind.SCHEMA, 99, {"new"}, "old", new_id=7)


def test_all_positions_of_the_ledger_move_and_repeated_orders_find_it_done() -> None:
    znodes = named((7, "old"), (8, "old"), (7, None), (7, "old"))
    assert promote(znodes) == MOVED
    assert znodes.positions() == [(99, "new"), (8, "old"), (99, "new"), (99, "new")]
    before = dict(znodes.data)
    assert promote(znodes) == ALREADY
    assert znodes.data == before


def test_what_is_taken_back_has_its_old_id_and_repeated_orders_find_it_done() -> None:
    znodes = named((99, "new"), (8, "old"), (99, "new"))
    assert revert(znodes) == MOVED
    assert znodes.positions() == [(7, "old"), (8, "old"), (7, "old")]
    assert revert(znodes) == ALREADY


def test_a_position_that_came_to_it_later_moves_as_well() -> None:
    znodes = named((99, "new"), (7, "old"))
    assert promote(znodes) == MOVED
    assert znodes.positions() == [(99, "new"), (99, "new")]


UNTOUCHED = {
    "the target's own ledger of the old id": ([(7, "new")], promote, AttributionOutcome.CONFLICT),
    "a third cluster's": ([(7, "third"), (7, "old")], promote, AttributionOutcome.CONFLICT),
    "the new id in another cluster": ([(99, "old")], promote, AttributionOutcome.GONE),
    "neither id": ([(8, "old")], promote, AttributionOutcome.GONE),
    "never promoted": ([(7, None)], revert, AttributionOutcome.GONE),
    "never promoted, and said so": ([(7, "old")], revert, AttributionOutcome.DONE),
    "taken back, but for the target's own": ([(7, "new")], revert, AttributionOutcome.GONE),
}


@for_each(("positions", "order", "result"), UNTOUCHED.values(), ids=UNTOUCHED)
def test_nothing_else_is_touched(
    positions: list[tuple[int, str | None]], order: Any, result: AttributionOutcome
) -> None:
    znodes = named(*positions)
    before = dict(znodes.data)
    said = order(znodes)
    assert (said.outcome, said.changed) == (result, ())
    assert znodes.data == before


def test_a_reference_that_was_never_promoted_is_the_bootstrap_clusters_after_a_revert_whatever_it_said() -> None:
    znodes = named((7, None), (7, "new"))
    references = ReferenceZnodes(cast("ZooKeeperSession", znodes))
    said = references.attribute([PATH], LedgerKind.SCHEMA, 7, {"new", None}, "old")
    assert said == Attribution(AttributionOutcome.DONE, (ValuePart.ATTRIBUTION,))
    assert znodes.positions() == [(7, "old"), (7, "old")]


def test_one_znode_that_is_in_the_way_is_told_whatever_became_of_the_others() -> None:
    znodes = named((7, "old"))
    znodes.data["/schemas/t/n/other"] = named((7, "third")).data[PATH]
    references = ReferenceZnodes(cast("ZooKeeperSession", znodes))
    said = references.attribute([PATH, "/schemas/t/n/other"], LedgerKind.SCHEMA, 7, {"old"}, "new", new_id=99)
    assert (said.outcome, said.changed) == (AttributionOutcome.CONFLICT, (ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID))
    assert znodes.positions() == [(99, "new")]


def test_what_others_wrote_meanwhile_is_not_lost() -> None:
    znodes = named((7, "old"))
    znodes.others = named((7, "old"), (8, "old")).data[PATH]
    assert promote(znodes).outcome is AttributionOutcome.CONFLICT
    assert znodes.positions() == [(7, "old"), (8, "old")]
    assert promote(znodes) == MOVED
    assert znodes.positions() == [(99, "new"), (8, "old")]


def test_a_new_id_that_is_the_old_one_is_an_attribution_only() -> None:
    znodes = named((7, "old"))
    references = ReferenceZnodes(cast("ZooKeeperSession", znodes))
    said = references.attribute([PATH], LedgerKind.SCHEMA, 7, {"old"}, "new", new_id=7)
    assert said == Attribution(AttributionOutcome.DONE, (ValuePart.ATTRIBUTION,))
