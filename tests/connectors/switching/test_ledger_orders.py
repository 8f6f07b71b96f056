"""What the policy is told of each way an order about a ledger may end, and what is checked before a deletion."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from msgspec import structs

from connectors.bookkeeper.cluster import FoundLedgers
from connectors.bookkeeper.copier import CopyOutcome, CopyResult
from connectors.bookkeeper.copy_journal import CopiedLedger, CopyRecord
from connectors.bookkeeper.gateway import JvmDiedError
from connectors.pulsar.topics import ValuePart
from connectors.redaction import remember_secret
from connectors.switching.broker_agent import Attribution
from connectors.switching.ledger_orders import LedgerOrders
from connectors.zookeeper.json_znodes import ZnodeError
from policies.switching.decisions import LedgerRef, SwitchDecision, SwitchVerdict
from policies.switching.ledgers import Ledger, LedgerKind, LedgerState
from policies.switching.readings import LedgerOutcome, SwitchLedger
from policies.switching.state import LedgerStage
from tests.cases import for_each
from tests.connectors.switching.orders import order

CLOSED = Ledger(ledger_id=7, state=LedgerState.CLOSED, last_entry_id=1, length_bytes=9, created_ms=5)
COPIED = CopyRecord(
    ledger_id=7, source="id-old", target="id-new", token="token",
    copied=CopiedLedger(length_bytes=9, last_entry_id=1, entries_digest="x", created_ms=5),
)  # fmt: skip


@dataclass
class World:
    """What the order finds, and what was asked of it."""

    copy: CopyOutcome = CopyOutcome.COPIED
    delete: CopyOutcome = CopyOutcome.DELETED
    attributed: Attribution = field(default_factory=lambda: Attribution(changed=(ValuePart.ATTRIBUTION,)))
    owners: frozenset[str | None] = frozenset()
    unreadable: bool = False
    record: CopyRecord | None = COPIED
    in_old: Ledger | None = CLOSED
    in_new: Ledger | None = CLOSED
    loaded_by: str | None = None
    jvm_fails: Exception | None = None
    named: int = 7
    """Which ledger the references name."""
    asked: list[str] = field(default_factory=list)
    moves: list[tuple[int, str, int]] = field(default_factory=list)
    """Which ledger was attributed to which cluster, under which id there."""

    owners_expected: Collection[str | None] = ()
    """To whom it had to be attributed before."""

    def carry_out(self, decision: SwitchDecision) -> SwitchLedger:
        return self.orders().carry_out(decision)

    def orders(self) -> LedgerOrders:
        parts = cast("tuple[Any, Any, Any]", (_Ledgers(self), _Copiers(self), _References(self)))
        return LedgerOrders(*parts)


class _Ledgers:
    def __init__(self, world: World) -> None:
        self._world = world

    def find_ledgers(self, name: str, ledger_ids: Collection[int]) -> FoundLedgers:
        ledger = {"old": self._world.in_old, "new": self._world.in_new}[name]
        return FoundLedgers() if ledger is None or 7 not in ledger_ids else FoundLedgers({7}, {7: ledger})

    def find_owner(self, _path: str) -> str | None:
        return self._world.loaded_by


class _Copiers:
    def __init__(self, world: World) -> None:
        self._world = world

    def get(self, source: str, target: str) -> "_Copier":
        assert (source, target) == ("old", "new")
        return _Copier(self._world)


class _References:
    def __init__(self, world: World) -> None:
        self._world = world

    def attribute(
        self,
        paths: Iterable[str],
        kind: LedgerKind,
        ledger_id: int,
        owners: Collection[str | None],
        to: str,
        *,
        new_id: int | None = None,
    ) -> Attribution:
        assert new_id is not None
        self._world.asked.append("attribute")
        self._world.moves.append((ledger_id, to, new_id))
        self._world.owners_expected = owners
        return self._world.attributed

    def read_owners(self, _paths: Iterable[str], _kind: LedgerKind, ledger_id: int) -> frozenset[str | None]:
        if self._world.unreadable:
            raise ZnodeError("/x: cannot be read")
        return self._world.owners if ledger_id == self._world.named else frozenset()


class _Copier:
    def __init__(self, world: World) -> None:
        self._world = world
        self.journal = _Journal(world)

    def make_ready(self) -> None:
        self._world.asked.append("make_ready")
        if self._world.jvm_fails is not None:
            raise self._world.jvm_fails

    def copy(self, ledger_id: int, *, new_id: bool = False) -> CopyResult:
        self._world.asked.append("copy anew" if new_id else "copy")
        is_ours = self._world.copy is not CopyOutcome.FOREIGN_CONFLICT
        target = structs.replace(CLOSED, provenance="id-old") if is_ours else None
        return CopyResult(self._world.copy, source=CLOSED, target=target)

    def delete(self, _ledger_id: int, *, own: bool) -> CopyResult:
        self._world.asked.append("delete_own" if own else "delete_old")
        return CopyResult(self._world.delete)


class _Journal:
    def __init__(self, world: World) -> None:
        self._world = world

    def find(self, _ledger_id: int) -> CopyRecord | None:
        if self._world.unreadable:
            raise ZnodeError("no way")
        return self._world.record


@pytest.mark.parametrize("fails", [None, JvmDiedError("no Java")])
def test_what_copies_is_started_ahead_and_where_that_fails_the_first_copy_will_say_so(fails: Exception | None) -> None:
    world = World(jvm_fails=fails)
    world.orders().make_ready("old", "new")
    assert world.asked == ["make_ready"]


@pytest.mark.parametrize(
    ("found", "result"),
    [
        (Attribution(changed=(ValuePart.ATTRIBUTION,)), LedgerOutcome.PROMOTED),
        (Attribution(), LedgerOutcome.PROMOTED),
        (Attribution(LedgerOutcome.CONFLICT), LedgerOutcome.CONFLICT),
        (Attribution(LedgerOutcome.ROLLED_OVER, new_id=9, attribution="new"), LedgerOutcome.ROLLED_OVER),
        (Attribution(LedgerOutcome.FAILED, detail="no"), LedgerOutcome.FAILED),
    ],
)
def test_each_end_of_attributing_has_its_answer(found: Attribution, result: LedgerOutcome) -> None:
    said = World(attributed=found).carry_out(order(SwitchVerdict.PROMOTE, 5))
    assert (said.result, said.op, said.ledger_id) == (result, 5, 7)
    assert (said.new_id, said.attribution) == (found.new_id, found.attribution)


def test_a_change_that_went_too_far_is_told() -> None:
    wide = Attribution(changed=(ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID))
    assert World(attributed=wide).carry_out(order(SwitchVerdict.PROMOTE)).changed == ("attribution", "ledger_id")


@pytest.mark.parametrize(
    "now",
    [{"length_bytes": 10}, {"last_entry_id": 2}, {"created_ms": 6}],
    ids=["longer", "more entries", "another ledger"],
)
def test_a_cursor_whose_ledger_is_not_the_one_copied_is_not_promoted(now: dict[str, int]) -> None:
    facts: dict[str, Any] = {"last_entry_id": 1, "length_bytes": 9, "created_ms": 5} | now
    world = World(in_old=Ledger(ledger_id=7, state=LedgerState.CLOSED, **facts))
    said = world.carry_out(order(SwitchVerdict.PROMOTE))
    assert (said.result, world.asked) == (LedgerOutcome.ADVANCED, ["delete_own", "copy"])
    assert "attribute" not in world.asked, "the next try promotes it"


def test_a_detail_is_one_line_without_secrets() -> None:
    remember_secret("bookie-password")
    failed = Attribution(LedgerOutcome.FAILED, detail=f"{'x' * 490}\nbookie-password")
    assert World(attributed=failed).carry_out(order(SwitchVerdict.PROMOTE)).detail == f"{'x' * 490} ***"


@pytest.mark.parametrize("outcome", [CopyOutcome.OWN_PARTIAL, CopyOutcome.COPY_DIFFERS])
def test_our_copy_that_is_not_whole_is_deleted_and_the_next_try_makes_it_again(outcome: CopyOutcome) -> None:
    world = World(copy=outcome)
    assert world.carry_out(order(SwitchVerdict.START_COPY)).result is LedgerOutcome.FAILED
    assert world.asked == ["copy", "delete_own"]


@for_each("verdict", [SwitchVerdict.START_COPY, SwitchVerdict.PROMOTE])
@for_each("why", ["the order is recalled", "another reference needs it", "a reference names it"])
def test_our_copy_is_not_deleted_to_be_made_again(verdict: SwitchVerdict, why: str) -> None:
    """The copy is partial, or it is not of the cursor's present ledger."""
    world = World(copy=CopyOutcome.OWN_PARTIAL, record=structs.replace(COPIED, copied=None))
    world.owners = frozenset({"old", "new"} if why == "a reference names it" else ())
    said = world.orders().carry_out(
        order(verdict, args={"shared": why == "another reference needs it"}), lambda: why != "the order is recalled"
    )
    assert said.result is not LedgerOutcome.PROMOTED
    assert not {"delete_own", "attribute"} & set(world.asked)


def test_a_cursor_without_a_whole_copy_is_copied_before_it_is_promoted() -> None:
    """An earlier try deleted the copy, and ended there."""
    world = World(record=None, delete=CopyOutcome.NOT_RECORDED, in_new=None)
    said = world.carry_out(order(SwitchVerdict.PROMOTE))
    assert (said.result, world.asked) == (LedgerOutcome.ADVANCED, ["delete_own", "copy"])
    foreign = World(record=None, copy=CopyOutcome.FOREIGN_CONFLICT, delete=CopyOutcome.NOT_RECORDED, in_new=None)
    assert foreign.carry_out(order(SwitchVerdict.PROMOTE)).result is LedgerOutcome.FAILED


def test_a_cursor_that_an_earlier_try_promoted_is_promoted_whatever_became_of_its_source() -> None:
    world = World(
        in_old=Ledger(ledger_id=7, state=LedgerState.CLOSED, last_entry_id=2, length_bytes=10),
        owners=frozenset({"new"}),
    )
    assert world.carry_out(order(SwitchVerdict.PROMOTE)).result is LedgerOutcome.PROMOTED


def test_legacy_references_are_changed_only_where_the_order_says_so() -> None:
    for legacy, owners in (("or_none", {"old", None}), ("only", {"old"})):
        world = World()
        world.carry_out(order(SwitchVerdict.PROMOTE, expects={"attribution": "old", "legacy": legacy, "ledger_id": 7}))
        assert (world.moves, world.owners_expected) == ([(7, "new", 7)], owners)


@for_each("outcome", [CopyOutcome.DELETED, CopyOutcome.NOT_RECORDED, CopyOutcome.REFUSED, CopyOutcome.FAILED])
@for_each(
    ("verdict", "done"),
    [(SwitchVerdict.DELETE_OWN_COPY, LedgerOutcome.COPY_DELETED), (SwitchVerdict.DELETE_OLD, LedgerOutcome.DELETED)],
)
def test_what_is_gone_is_deleted_and_nothing_else_is(
    verdict: SwitchVerdict, done: LedgerOutcome, outcome: CopyOutcome
) -> None:
    said = World(delete=outcome).carry_out(order(verdict))
    assert said.result is (done if outcome is CopyOutcome.DELETED else LedgerOutcome.FAILED)


def test_a_copy_that_an_earlier_try_deleted_and_forgot_is_deleted() -> None:
    world = World(delete=CopyOutcome.NOT_RECORDED, in_new=None)
    assert world.carry_out(order(SwitchVerdict.DELETE_OWN_COPY)).result is LedgerOutcome.COPY_DELETED


@pytest.mark.parametrize(
    ("verdict", "owners"),
    [
        (SwitchVerdict.DELETE_OWN_COPY, {"new"}),
        (SwitchVerdict.DELETE_OWN_COPY, {"old", "new"}),
        (SwitchVerdict.DELETE_OLD, {"old"}),
        (SwitchVerdict.DELETE_OLD, {None}),
        (SwitchVerdict.DELETE_OLD, {"new", None}),
    ],
)
def test_what_a_reference_still_needs_is_not_deleted(verdict: SwitchVerdict, owners: set[str | None]) -> None:
    world = World(owners=frozenset(owners))
    assert world.carry_out(order(verdict)).result is LedgerOutcome.FAILED
    assert world.asked == []


@pytest.mark.parametrize("verdict", [SwitchVerdict.DELETE_OWN_COPY, SwitchVerdict.DELETE_OLD])
def test_nothing_is_deleted_while_references_cannot_be_read(verdict: SwitchVerdict) -> None:
    world = World(unreadable=True)
    said = world.carry_out(order(verdict))
    assert (said.result, said.detail) == (LedgerOutcome.FAILED, "/x: cannot be read")
    assert world.asked == []


def test_an_open_ledger_is_not_copied_and_the_next_try_finds_it_closed() -> None:
    said = World(copy=CopyOutcome.SOURCE_OPEN).carry_out(order(SwitchVerdict.START_COPY))
    assert said.result is LedgerOutcome.FAILED
    assert "still written to" in (said.detail or "")


@pytest.mark.parametrize("loaded_by", ["b1:8080", None])
@pytest.mark.parametrize("verdict", [SwitchVerdict.PROMOTE, SwitchVerdict.REQUEST_ROLLOVER])
def test_nobody_but_its_owner_moves_the_cursor_of_a_loaded_topic(verdict: SwitchVerdict, loaded_by: str | None) -> None:
    if verdict is SwitchVerdict.PROMOTE and loaded_by is None:
        return
    world = World(loaded_by=loaded_by)
    said = world.carry_out(order(verdict))
    assert said.result is LedgerOutcome.FAILED
    assert "unload" in (said.detail or "")
    assert "attribute" not in world.asked


def test_the_cursor_of_a_loaded_topic_is_not_taken_back() -> None:
    world = World(loaded_by="b1:8080")
    said = world.carry_out(order(SwitchVerdict.REVERT))
    assert (said.result, said.detail) == (LedgerOutcome.FAILED, "b1:8080 has its topic loaded: unload it")
    assert world.asked == []


def test_no_reference_is_taken_back_to_a_ledger_that_was_deleted() -> None:
    world = World(owners=frozenset({"new"}), in_old=None)
    said = world.carry_out(order(SwitchVerdict.REVERT))
    assert (said.result, said.detail) == (LedgerOutcome.FAILED, "old no longer has this ledger: the copy stays in use")
    assert world.asked == []


def test_of_a_promoted_cursor_that_moved_on_since_a_revert_tells_where_it_is() -> None:
    """The policy has the row for it: what its owner wrote there is newer, so it is not taken back."""
    moved = Attribution(LedgerOutcome.ROLLED_OVER, new_id=9, attribution="new")
    said = World(attributed=moved).carry_out(order(SwitchVerdict.REVERT))
    assert (said.result, said.new_id, said.attribution) == (LedgerOutcome.ROLLED_OVER, 9, "new")


def test_what_stands_under_an_id_journalled_for_another_source_is_foreign() -> None:
    said = World(copy=CopyOutcome.FOREIGN_CONFLICT).carry_out(order(SwitchVerdict.START_COPY))
    assert said.result is LedgerOutcome.EXISTS
    assert said.target is not None
    assert said.target.provenance == ""


@for_each(
    ("outcome", "result"),
    [
        (CopyOutcome.COPIED, LedgerOutcome.COPIED),
        (CopyOutcome.BUILT, LedgerOutcome.EXISTS),
        (CopyOutcome.OWN_PARTIAL, LedgerOutcome.EXISTS),
        (CopyOutcome.COPY_DIFFERS, LedgerOutcome.COPIED),
        (CopyOutcome.SOURCE_UNREADABLE, LedgerOutcome.SOURCE_UNREADABLE),
        (CopyOutcome.FAILED, LedgerOutcome.FAILED),
    ],
)
def test_each_end_of_a_shared_copy_has_its_result(outcome: CopyOutcome, result: LedgerOutcome) -> None:
    said = World(copy=outcome).carry_out(order(SwitchVerdict.START_COPY, args={"shared": True}))
    assert said.result is result


# --- under a new id


SCHEMA = LedgerRef(
    ledger_id=7,
    target_id=9,
    kind=LedgerKind.SCHEMA,
    paths=("/schemas/t/n/a",),
    stage=LedgerStage.BUILT,
    remap=True,
    place=1,
    of=1,
)
UNTOLD = SCHEMA.model_copy(update={"target_id": None})
CURSOR = SCHEMA.model_copy(update={"kind": LedgerKind.CURSOR, "target_id": None})


@pytest.mark.parametrize(("remap", "asked"), [(True, "copy anew"), (False, "copy")])
def test_a_schema_is_copied_under_a_new_id_where_the_order_says_so(remap: bool, asked: str) -> None:
    world = World()
    ledger = UNTOLD.model_copy(update={"remap": remap})
    assert world.carry_out(order(SwitchVerdict.START_COPY, ledger=ledger)).result is LedgerOutcome.COPIED
    assert world.asked == [asked]


def test_a_cursor_is_never_copied_under_a_new_id() -> None:
    world = World()
    assert world.carry_out(order(SwitchVerdict.START_COPY, ledger=CURSOR)).result is LedgerOutcome.FAILED
    assert world.asked == []


MOVES = {
    "promote": (SwitchVerdict.PROMOTE, SCHEMA, (7, "new", 9)),
    "revert": (SwitchVerdict.REVERT, SCHEMA, (9, "old", 7)),
    "promote, same id": (
        SwitchVerdict.PROMOTE,
        SCHEMA.model_copy(update={"target_id": None, "remap": False}),
        (7, "new", 7),
    ),
    "revert of what was never rolled over": (SwitchVerdict.REVERT, CURSOR, (7, "old", 7)),
}


@pytest.mark.parametrize(("verdict", "ledger", "move"), MOVES.values(), ids=MOVES)
def test_references_get_the_id_that_the_ledger_has_in_their_cluster(
    verdict: SwitchVerdict, ledger: LedgerRef, move: tuple[int, str, int]
) -> None:
    world = World()
    world.carry_out(order(verdict, ledger=ledger))
    assert world.moves == [move]


def test_without_the_id_of_the_copy_nothing_is_promoted() -> None:
    world = World()
    assert world.carry_out(order(SwitchVerdict.PROMOTE, ledger=UNTOLD)).result is LedgerOutcome.FAILED
    assert world.asked == []


@pytest.mark.parametrize("named", [7, 9])
def test_a_copy_under_a_new_id_is_not_deleted_while_a_reference_needs_it(named: int) -> None:
    world = World(owners=frozenset({"new"}), named=named)
    assert world.carry_out(order(SwitchVerdict.DELETE_OWN_COPY, ledger=SCHEMA)).result is LedgerOutcome.FAILED
    assert world.asked == []


@pytest.mark.parametrize(("ledger", "in_new"), [(UNTOLD, CLOSED), (SCHEMA, CLOSED), (SCHEMA, None)])
def test_a_foreign_ledger_under_the_old_id_does_not_stand_for_a_copy_that_is_gone(
    ledger: LedgerRef, in_new: Ledger | None
) -> None:
    world = World(delete=CopyOutcome.NOT_RECORDED, in_new=in_new)
    assert world.carry_out(order(SwitchVerdict.DELETE_OWN_COPY, ledger=ledger)).result is LedgerOutcome.COPY_DELETED


def test_an_id_journalled_for_another_source_says_nothing_of_what_stands_under_it() -> None:
    said = World(copy=CopyOutcome.FOREIGN_CONFLICT).carry_out(order(SwitchVerdict.START_COPY, ledger=UNTOLD))
    assert (said.result, said.target) == (LedgerOutcome.EXISTS, None)


def test_an_order_that_names_no_ledger_is_none() -> None:
    with pytest.raises(ValueError, match="names no ledger"):
        World().carry_out(order(SwitchVerdict.PROMOTE, ledger=None))
