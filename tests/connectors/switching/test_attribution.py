"""Ledgers that have another id in the target: positions get id and attribution together, once, and give both back."""

from dataclasses import replace

import pytest

from connectors.pulsar.metadata import ValuePart, parse_locator
from connectors.switching.attribution import Attribution, Move, ReferenceZnodes
from connectors.zookeeper.json_znodes import ZnodeError
from policies.switching.ledgers import LedgerKind
from policies.switching.readings import LedgerOutcome
from tests.cases import for_each
from tests.connectors.pulsar.test_metadata import CODECS, MARK_DELETE, cluster_is, cursor, locator, position
from tests.connectors.pulsar.znodes import schema_locator
from tests.fakes.zookeeper import Server

PATH, CURSOR = "/schemas/t/n/topic", "/managed-ledgers/t/n/persistent/topic/s1"
LEGACY = frozenset({"old", None})
TO_NEW = Move(LedgerKind.SCHEMA, 7, LEGACY, "new", 7)
CHANGED = (ValuePart.ATTRIBUTION,)
DONE = Attribution(changed=CHANGED)
MOVED = Attribution(changed=(ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID))
ALREADY = Attribution()


class World:
    """A ZooKeeper in memory with a locator of these ledgers, and what writes the attributions."""

    def __init__(self, *positions: tuple[int, str | None]) -> None:
        self.server = Server()
        self.references = ReferenceZnodes(self.server.session())
        if positions:
            self.put(PATH, make_locator(*positions))

    def put(self, path: str, data: bytes) -> bytes:
        self.server.write(path, data)
        return data

    def get(self, path: str = PATH) -> bytes:
        return self.server.tree[path][0]

    def positions(self) -> list[tuple[int, str | None]]:
        return [(each.ledger_id, each.attribution) for each in parse_locator(PATH, self.get())]

    def promote(self, *, new_id: int = 99) -> Attribution:
        return self.references.attribute([PATH], Move(LedgerKind.SCHEMA, 7, LEGACY, "new", new_id))

    def revert(self) -> Attribution:
        return self.references.attribute([PATH], Move(LedgerKind.SCHEMA, 99, frozenset({"new"}), "old", 7))

    def move_cursor(self) -> Attribution:
        return self.references.attribute([CURSOR], Move(LedgerKind.CURSOR, 7, LEGACY, "new", 7))

    def make_again(self, path: str, data: bytes) -> None:
        """Another znode in its place, of the same version."""
        self.server.delete(path)
        self.server.write(path, data)


def make_locator(*positions: tuple[int, str | None]) -> bytes:
    return locator(*(position(ledger_id, at, *cluster_is(owner)) for at, (ledger_id, owner) in enumerate(positions)))


def test_all_positions_of_the_ledger_move_and_repeated_orders_find_it_done() -> None:
    world = World((7, "old"), (8, "old"), (7, None), (7, "old"))
    assert world.promote() == MOVED
    assert world.positions() == [(99, "new"), (8, "old"), (99, "new"), (99, "new")]
    before = world.get()
    assert world.promote() == ALREADY
    assert world.get() == before


def test_what_is_taken_back_has_its_old_id_and_repeated_orders_find_it_done() -> None:
    world = World((99, "new"), (8, "old"), (99, "new"))
    assert world.revert() == MOVED
    assert world.positions() == [(7, "old"), (8, "old"), (7, "old")]
    assert world.revert() == ALREADY


def test_a_position_that_came_to_it_later_moves_as_well() -> None:
    world = World((99, "new"), (7, "old"))
    assert world.promote() == MOVED
    assert world.positions() == [(99, "new"), (99, "new")]


UNTOUCHED = {
    "the target's own ledger of the old id": ([(7, "new")], "promote", LedgerOutcome.CONFLICT),
    "a third cluster's": ([(7, "third"), (7, "old")], "promote", LedgerOutcome.CONFLICT),
    "the new id in another cluster": ([(99, "old")], "promote", None),
    "neither id": ([(8, "old")], "promote", None),
    "never promoted": ([(7, None)], "revert", None),
    "never promoted, and said so": ([(7, "old")], "revert", None),
    "taken back, but for the target's own": ([(7, "new")], "revert", None),
}


@for_each(("positions", "order", "result"), UNTOUCHED.values(), ids=UNTOUCHED)
def test_nothing_else_is_touched(
    positions: list[tuple[int, str | None]], order: str, result: LedgerOutcome | None
) -> None:
    world = World(*positions)
    before = world.get()
    said = world.promote() if order == "promote" else world.revert()
    assert (said.failure, said.changed) == (result, ())
    assert world.get() == before


def test_a_reference_that_was_never_promoted_is_the_bootstrap_clusters_after_a_revert_whatever_it_said() -> None:
    world = World((7, None), (7, "new"))
    assert world.references.attribute([PATH], replace(TO_NEW, owners=frozenset({"new", None}), to="old")) == DONE
    assert world.positions() == [(7, "old"), (7, "old")]


def test_a_new_id_that_is_the_old_one_is_an_attribution_only() -> None:
    assert World((7, "old")).promote(new_id=7) == DONE


def test_what_others_wrote_before_us_is_not_lost() -> None:
    world = World((7, "old"))
    world.server.before_commit.append(lambda: world.put(PATH, make_locator((7, "old"), (8, "old"))))
    assert world.promote().failure is LedgerOutcome.CONFLICT
    assert world.positions() == [(7, "old"), (8, "old")]
    assert world.promote() == MOVED
    assert world.positions() == [(99, "new"), (8, "old")]


def test_an_edit_that_would_change_more_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    before = world.put(CURSOR, cursor(7, unknown=MARK_DELETE))
    monkeypatch.setattr("connectors.switching.attribution.set_attribution", lambda *_: cursor(7, *cluster_is("new")))
    detail = f"{CURSOR}: not written, as this would change more: other"
    assert world.move_cursor() == Attribution(LedgerOutcome.FAILED, detail=detail)
    assert world.get(CURSOR) == before


def test_a_cursor_made_anew_under_our_hands_is_told_as_a_wide_change() -> None:
    world = World()
    world.put(CURSOR, cursor(7))
    world.server.before_commit.append(lambda: world.make_again(CURSOR, cursor(9)))
    said = world.move_cursor()
    assert (said.failure, said.changed) == (None, (ValuePart.ATTRIBUTION, ValuePart.OTHER))


@for_each("owner", ["new", None])
def test_a_cursor_that_rolled_over_names_its_new_ledger_and_cluster(owner: str | None) -> None:
    world = World()
    before = world.put(CURSOR, CODECS["lz4"](cursor(9, *cluster_is(owner))))
    assert world.move_cursor() == Attribution(LedgerOutcome.ROLLED_OVER, new_id=9, attribution=owner)
    assert world.get(CURSOR) == before


@for_each("data", [None, cursor(-1, *cluster_is("old"))], ids=["deleted", "closed in order"])
def test_a_ledger_that_nothing_names_any_more_is_gone(data: bytes | None) -> None:
    world = World()
    if data is not None:
        world.put(CURSOR, data)
    said = world.move_cursor()
    assert (said.failure, said.changed) == (None, ())
    assert world.references.read_owners([CURSOR], LedgerKind.CURSOR, 7) == frozenset()


def test_a_cursor_deleted_while_we_write_is_gone() -> None:
    world = World()
    world.put(CURSOR, cursor(7))
    world.server.before_commit.append(lambda: world.server.delete(CURSOR))
    assert world.move_cursor().failure is None


def test_a_damaged_znode_fails_and_is_not_taken_for_one_without_the_ledger() -> None:
    world = World()
    world.put(CURSOR, b"\xff")
    detail = f"{CURSOR}: it is no ManagedCursorInfo"
    assert world.move_cursor() == Attribution(LedgerOutcome.FAILED, detail=detail)
    with pytest.raises(ZnodeError, match=detail):
        world.references.read_owners([CURSOR], LedgerKind.CURSOR, 7)


def test_the_order_again_completes_what_a_conflict_left_undone() -> None:
    world = World()
    references, paths = world.references, [f"{PATH}{n}" for n in range(3)]
    for path in paths:
        world.put(path, schema_locator(7))
    world.server.before_commit.append(lambda: world.put(paths[0], schema_locator(7, 8)))
    said = references.attribute(paths, TO_NEW)
    assert (said.failure, said.changed) == (LedgerOutcome.CONFLICT, CHANGED)
    assert [references.read_owners([path], LedgerKind.SCHEMA, 7) for path in paths] == [{None}, {"new"}, {"new"}]
    assert references.read_owners(paths, LedgerKind.SCHEMA, 7) == {None, "new"}
    assert references.attribute(paths, TO_NEW) == DONE
    assert references.read_owners(paths, LedgerKind.SCHEMA, 7) == {"new"}


@for_each("is_wide", [False, True])
def test_one_znode_that_is_in_the_way_hides_no_wide_change_of_another(is_wide: bool) -> None:
    world = World((7, "old"))
    world.put(third := f"{PATH}-third", schema_locator(7, attribution="third"))
    if is_wide:
        world.server.before_commit.append(lambda: world.make_again(PATH, make_locator((9, "old"))))
    said = world.references.attribute([PATH, third], TO_NEW)
    wide = (None, (ValuePart.ATTRIBUTION, ValuePart.OTHER))
    assert (said.failure, said.changed) == (wide if is_wide else (LedgerOutcome.CONFLICT, CHANGED))


def test_an_order_that_names_no_znode_is_never_done() -> None:
    assert World().references.attribute([], TO_NEW).failure is LedgerOutcome.FAILED
