"""What the policy is told of each way an order about a ledger may end, and what is checked before a deletion."""

import json
from base64 import b64encode
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from connectors.bookkeeper.cluster import FoundLedgers
from connectors.bookkeeper.copier import CopyResult, NotPossibleError, NotRecordedError, SourceUnreadableError
from connectors.bookkeeper.copy_journal import CopiedLedger, CopyRecord, OtherSourceError
from connectors.bookkeeper.gateway import BookKeeperJvm, JavaError, JvmDiedError
from connectors.pulsar.metadata import ValuePart
from connectors.redaction import remember_secret
from connectors.switching.attribution import Attribution, Move
from connectors.switching.ledger_orders import LedgerCopiers, LedgerOrders
from connectors.switching.registration import SwitchExecution
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.session import UnreadError
from policies.switching.decisions import LedgerRef, SwitchDecision, SwitchVerdict
from policies.switching.ledgers import Ledger, LedgerKind, LedgerState
from policies.switching.readings import LedgerOutcome, SwitchLedger
from policies.switching.state import LedgerStage
from policies.units import UserError
from tests.cases import for_each
from tests.connectors.switching.orders import order
from tests.connectors.switching.test_readings import MemorySessions

CLOSED = Ledger(ledger_id=7, state=LedgerState.CLOSED, last_entry_id=1, length_bytes=9, created_ms=5)
COPIED = CopyRecord(
    ledger_id=7, source="id-old", target="id-new", token="token",
    copied=CopiedLedger(length_bytes=9, last_entry_id=1, entries_digest="x", created_ms=5),
)  # fmt: skip


OURS = structs.replace(CLOSED, provenance="id-old")
MADE, FOUND = LedgerOutcome.COPIED, LedgerOutcome.EXISTS
WHOLE = CopyResult(MADE, CLOSED, OURS, is_ours=True, is_equal=True)
PARTIAL = CopyResult(FOUND, CLOSED, OURS, is_ours=True)
FOREIGN = CopyResult(FOUND, detail="it is journalled as a copy from another")


COPY, PROMOTE, REVERT = SwitchVerdict.START_COPY, SwitchVerdict.PROMOTE, SwitchVerdict.REVERT
DELETE_OWN, DELETE_OLD = SwitchVerdict.DELETE_OWN_COPY, SwitchVerdict.DELETE_OLD
SCHEMA = LedgerRef(
    ledger_id=7, target_id=9, kind=LedgerKind.SCHEMA, paths=("/schemas/t/n/a",), stage=LedgerStage.BUILT,
    remap=True, place=1, of=1,
)  # fmt: skip
UNTOLD = SCHEMA.model_copy(update={"target_id": None})
CURSOR = SCHEMA.model_copy(update={"kind": LedgerKind.CURSOR, "target_id": None})


@dataclass
class World:
    """What the order finds, and what was asked of it: sessions, references, the copier and its journal at once."""

    copied: CopyResult | Exception = WHOLE
    deleted: Exception | None = None
    attributed: Attribution = field(default_factory=lambda: Attribution(changed=(ValuePart.ATTRIBUTION,)))
    owners: Collection[str | None] = ()
    unreadable: bool = False
    record: CopyRecord | None = COPIED
    in_old: Ledger | None = CLOSED
    in_new: Ledger | None = CLOSED
    loaded_by: str | None = None
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
        return LedgerOrders(*cast("tuple[Any, Any, Any]", (self, self, self)))

    def get(self, source: str, target: str) -> "World":
        assert (source, target) == ("old", "new")
        return self

    @property
    def journal(self) -> "World":
        return self

    def find_ledgers(self, name: str, ledger_ids: Collection[int]) -> FoundLedgers:
        ledger = {"old": self.in_old, "new": self.in_new}[name]
        return FoundLedgers() if ledger is None or 7 not in ledger_ids else FoundLedgers({7}, {7: ledger})

    def find_owner(self, _path: str) -> str | None:
        return self.loaded_by

    def attribute(self, paths: object, move: Move) -> Attribution:
        self.asked.append("attribute")
        self.moves.append((move.ledger_id, move.to, move.new_id))
        self.owners_expected = move.owners
        return self.attributed

    def read_owners(self, _paths: object, _kind: object, ledger_id: int) -> frozenset[str | None]:
        if self.unreadable:
            raise ZnodeError("/x: cannot be read")
        return frozenset(self.owners if ledger_id == self.named else ())

    def copy(self, ledger_id: int, *, new_id: bool = False) -> CopyResult:
        self.asked.append("copy anew" if new_id else "copy")
        if isinstance(self.copied, Exception):
            raise self.copied
        return self.copied

    def delete(self, _ledger_id: int, *, own: bool) -> None:
        self.asked.append("delete_own" if own else "delete_old")
        if self.deleted is not None:
            raise self.deleted

    def find(self, _ledger_id: int) -> CopyRecord | None:
        return self.record


@for_each(
    ("verdict", "found", "result"),
    [
        (PROMOTE, Attribution(changed=(ValuePart.ATTRIBUTION,)), LedgerOutcome.PROMOTED),
        (PROMOTE, Attribution(), LedgerOutcome.PROMOTED),
        (PROMOTE, Attribution(LedgerOutcome.CONFLICT), LedgerOutcome.CONFLICT),
        (PROMOTE, Attribution(LedgerOutcome.ROLLED_OVER, new_id=9, attribution="new"), LedgerOutcome.ROLLED_OVER),
        (PROMOTE, Attribution(LedgerOutcome.FAILED, detail="no"), LedgerOutcome.FAILED),
        # A change that went too far is told.
        (PROMOTE, Attribution(changed=(ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID)), LedgerOutcome.PROMOTED),
        (REVERT, Attribution(changed=(ValuePart.ATTRIBUTION,)), LedgerOutcome.REVERTED),
        # What its owner wrote there is newer, so it is not taken back.
        (REVERT, Attribution(LedgerOutcome.ROLLED_OVER, new_id=9, attribution="new"), LedgerOutcome.ROLLED_OVER),
    ],
)
def test_each_end_of_attributing_has_its_answer(
    verdict: SwitchVerdict, found: Attribution, result: LedgerOutcome
) -> None:
    said = World(attributed=found).carry_out(order(verdict, 5))
    assert (said.result, said.op, said.ledger_id) == (result, 5, 7)
    assert (said.new_id, said.attribution, said.changed) == (found.new_id, found.attribution, found.changed)


@pytest.mark.parametrize(
    "now",
    [{"length_bytes": 10}, {"last_entry_id": 2}, {"created_ms": 6}],
    ids=["longer", "more entries", "another ledger"],
)
def test_a_cursor_whose_ledger_is_not_the_one_copied_is_not_promoted(now: dict[str, int]) -> None:
    facts: dict[str, Any] = {"last_entry_id": 1, "length_bytes": 9, "created_ms": 5} | now
    world = World(in_old=Ledger(ledger_id=7, state=LedgerState.CLOSED, **facts))
    said = world.carry_out(order(PROMOTE))
    assert (said.result, world.asked) == (LedgerOutcome.ADVANCED, ["delete_own", "copy"])
    assert "attribute" not in world.asked, "the next try promotes it"


def test_a_detail_is_one_line_without_secrets() -> None:
    remember_secret("bookie-password")
    failed = Attribution(LedgerOutcome.FAILED, detail=f"{'x' * 490}\nbookie-password")
    assert World(attributed=failed).carry_out(order(PROMOTE)).detail == f"{'x' * 490} ***"


@pytest.mark.parametrize("copied", [PARTIAL, replace(PARTIAL, outcome=MADE)], ids=["found", "made"])
def test_our_copy_that_is_not_whole_is_deleted_and_the_next_try_makes_it_again(copied: CopyResult) -> None:
    world = World(copied=copied)
    assert world.carry_out(order(COPY)).result is LedgerOutcome.FAILED
    assert world.asked == ["copy", "delete_own"]


@for_each("verdict", [COPY, PROMOTE])
@for_each("why", ["the order is recalled", "another reference needs it", "a reference names it"])
def test_our_copy_is_not_deleted_to_be_made_again(verdict: SwitchVerdict, why: str) -> None:
    """The copy is partial, or it is not of the cursor's present ledger."""
    world = World(copied=PARTIAL, record=structs.replace(COPIED, copied=None))
    world.owners = frozenset({"old", "new"} if why == "a reference names it" else ())
    said = world.orders().carry_out(
        order(verdict, args={"shared": why == "another reference needs it"}), lambda: why != "the order is recalled"
    )
    assert said.result is not LedgerOutcome.PROMOTED
    assert not {"delete_own", "attribute"} & set(world.asked)


def test_a_cursor_without_a_whole_copy_is_copied_before_it_is_promoted() -> None:
    """An earlier try deleted the copy, and ended there."""
    world = World(record=None, deleted=NotRecordedError(), in_new=None)
    said = world.carry_out(order(PROMOTE))
    assert (said.result, world.asked) == (LedgerOutcome.ADVANCED, ["delete_own", "copy"])
    foreign = World(record=None, copied=FOREIGN, deleted=NotRecordedError(), in_new=None)
    assert foreign.carry_out(order(PROMOTE)).result is LedgerOutcome.FAILED


def test_a_cursor_that_an_earlier_try_promoted_is_promoted_whatever_became_of_its_source() -> None:
    world = World(
        in_old=Ledger(ledger_id=7, state=LedgerState.CLOSED, last_entry_id=2, length_bytes=10), owners={"new"}
    )
    assert world.carry_out(order(PROMOTE)).result is LedgerOutcome.PROMOTED


def test_legacy_references_are_changed_only_where_the_order_says_so() -> None:
    for legacy, owners in (("or_none", {"old", None}), ("only", {"old"})):
        world = World()
        world.carry_out(order(PROMOTE, expects={"attribution": "old", "legacy": legacy, "ledger_id": 7}))
        assert (world.moves, world.owners_expected) == ([(7, "new", 7)], owners)


def test_a_promoted_ledger_that_the_source_still_has_is_reverted() -> None:
    assert World(owners={"new"}).carry_out(order(REVERT)).result is LedgerOutcome.REVERTED


@for_each("error", [None, NotRecordedError("no"), NotPossibleError("no"), OtherSourceError("no"), ZnodeError("no")])
@for_each(("verdict", "done"), [(DELETE_OWN, LedgerOutcome.COPY_DELETED), (DELETE_OLD, LedgerOutcome.DELETED)])
def test_what_is_gone_is_deleted_and_nothing_else_is(
    verdict: SwitchVerdict, done: LedgerOutcome, error: Exception | None
) -> None:
    said = World(deleted=error).carry_out(order(verdict))
    assert (said.result, said.detail) == ((LedgerOutcome.FAILED, "no") if error else (done, None))


@pytest.mark.parametrize("error", [NotRecordedError(), OtherSourceError()])
def test_a_copy_that_an_earlier_try_deleted_and_forgot_is_deleted(error: Exception) -> None:
    assert World(deleted=error, in_new=None).carry_out(order(DELETE_OWN)).result is LedgerOutcome.COPY_DELETED


REFUSED: list[tuple[dict[str, Any], SwitchVerdict, dict[str, Any], str]] = [
    ({"owners": {"new"}}, DELETE_OWN, {}, "attributes it to new"),
    ({"owners": {"old", "new"}}, DELETE_OWN, {}, "attributes it to new"),
    ({"owners": {"new"}}, DELETE_OWN, {"ledger": SCHEMA}, "attributes it to new"),
    ({"owners": {"new"}, "named": 9}, DELETE_OWN, {"ledger": SCHEMA}, "attributes it to new"),
    ({"owners": {"old"}}, DELETE_OLD, {}, "still attributes it to old"),
    ({"owners": {None}}, DELETE_OLD, {}, "still attributes it to nobody"),
    ({"owners": {"new", None}}, DELETE_OLD, {}, "still attributes it to nobody"),
    ({"unreadable": True}, DELETE_OWN, {}, "/x: cannot be read"),
    ({"unreadable": True}, DELETE_OLD, {}, "/x: cannot be read"),
    ({"loaded_by": "b1:8080"}, PROMOTE, {}, "b1:8080 has its topic loaded: unload it"),
    ({"loaded_by": "b1:8080"}, REVERT, {}, "b1:8080 has its topic loaded: unload it"),
    ({"loaded_by": "b1:8080"}, SwitchVerdict.REQUEST_ROLLOVER, {}, "b1:8080 must roll the cursor over"),
    ({}, SwitchVerdict.REQUEST_ROLLOVER, {}, "its next owner must roll the cursor over: load and unload its topic"),
    ({"owners": {"new"}, "in_old": None}, REVERT, {}, "old no longer has this ledger: the copy stays in use"),
    ({}, COPY, {"ledger": CURSOR}, "a cursor is never copied under a new id"),
    ({}, PROMOTE, {"ledger": UNTOLD}, "does not say which id its copy has"),
]


@for_each(("found", "verdict", "more", "why"), REFUSED)
def test_what_is_still_needed_or_not_known_is_not_touched(
    found: dict[str, Any], verdict: SwitchVerdict, more: dict[str, Any], why: str
) -> None:
    world = World(**found)
    said = world.carry_out(order(verdict, **more))
    assert (said.result, world.asked) == (LedgerOutcome.FAILED, [])
    assert why in (said.detail or "")


def test_what_stands_under_an_id_journalled_for_another_source_is_foreign() -> None:
    said = World(copied=FOREIGN).carry_out(order(COPY))
    assert (said.result, said.target and said.target.provenance) == (LedgerOutcome.EXISTS, "")


@for_each(
    ("copied", "result"),
    [
        (WHOLE, MADE),
        (replace(WHOLE, outcome=FOUND), FOUND),
        (PARTIAL, FOUND),
        (replace(PARTIAL, outcome=MADE), MADE),
        (SourceUnreadableError("no"), LedgerOutcome.SOURCE_UNREADABLE),
        (NotPossibleError("no"), LedgerOutcome.FAILED),
        (JvmDiedError("no"), LedgerOutcome.FAILED),
        (JavaError("no"), LedgerOutcome.FAILED),
    ],
)
def test_each_end_of_a_shared_copy_has_its_result(copied: CopyResult | Exception, result: LedgerOutcome) -> None:
    said = World(copied=copied).carry_out(order(COPY, args={"shared": True}))
    assert (said.result, said.detail) == (result, "no" if isinstance(copied, Exception) else None)


def test_a_cursor_whose_source_cannot_be_read_is_not_promoted() -> None:
    world = World(record=None, deleted=NotRecordedError(), in_new=None, copied=SourceUnreadableError("no"))
    assert world.carry_out(order(PROMOTE)).result is LedgerOutcome.FAILED


@pytest.mark.parametrize(("remap", "asked"), [(True, "copy anew"), (False, "copy")])
def test_a_schema_is_copied_under_a_new_id_where_the_order_says_so(remap: bool, asked: str) -> None:
    world = World()
    ledger = UNTOLD.model_copy(update={"remap": remap})
    assert world.carry_out(order(COPY, ledger=ledger)).result is LedgerOutcome.COPIED
    assert world.asked == [asked]


MOVES = {
    "promote": (PROMOTE, SCHEMA, (7, "new", 9)),
    "revert": (REVERT, SCHEMA, (9, "old", 7)),
    "promote, same id": (PROMOTE, SCHEMA.model_copy(update={"target_id": None, "remap": False}), (7, "new", 7)),
    "revert of what was never rolled over": (REVERT, CURSOR, (7, "old", 7)),
}


@pytest.mark.parametrize(("verdict", "ledger", "move"), MOVES.values(), ids=MOVES)
def test_references_get_the_id_that_the_ledger_has_in_their_cluster(
    verdict: SwitchVerdict, ledger: LedgerRef, move: tuple[int, str, int]
) -> None:
    world = World()
    world.carry_out(order(verdict, ledger=ledger))
    assert world.moves == [move]


@pytest.mark.parametrize(("ledger", "in_new"), [(UNTOLD, CLOSED), (SCHEMA, CLOSED), (SCHEMA, None)])
def test_a_foreign_ledger_under_the_old_id_does_not_stand_for_a_copy_that_is_gone(
    ledger: LedgerRef, in_new: Ledger | None
) -> None:
    world = World(deleted=NotRecordedError(), in_new=in_new)
    assert world.carry_out(order(DELETE_OWN, ledger=ledger)).result is LedgerOutcome.COPY_DELETED


def test_an_id_journalled_for_another_source_says_nothing_of_what_stands_under_it() -> None:
    said = World(copied=FOREIGN).carry_out(order(COPY, ledger=UNTOLD))
    assert (said.result, said.target) == (LedgerOutcome.EXISTS, None)


def test_an_order_that_names_no_ledger_is_none() -> None:
    with pytest.raises(ValueError, match="names no ledger"):
        World().carry_out(order(PROMOTE, ledger=None))


# --- the copier of a broker cluster, made when it is first needed and for each other move, with the limit in force


class Jvm(BookKeeperJvm):
    """One that is never started; all that it finds is foreign."""

    def __init__(self) -> None:
        self.settings: dict[str, object] = {}
        self.made: list[dict[str, object]] = []
        self.limits: list[int] = []
        self.closed = 0

    def run(self, request: str) -> str:
        self.made.append(dict(self.settings))
        return json.dumps({"status": "foreign"})

    def limit(self, bytes_per_second: int) -> None:
        self.limits.append(bytes_per_second)
        self.settings["bytes_per_second"] = bytes_per_second

    def close(self) -> None:
        self.closed += 1


class Copiers:
    def __init__(self, password_file: Path) -> None:
        self.sessions, self.jvm, self.jvms = MemorySessions(), Jvm(), 0
        self.password_file = password_file
        password_file.write_text("secret")
        settings = SwitchExecution(ledger_password_file=password_file)
        self.copiers = LedgerCopiers(self.sessions, settings, self._start, 4)

    def _start(self) -> BookKeeperJvm:
        self.jvms += 1
        return self.jvm


@pytest.fixture
def world(tmp_path: Path) -> Copiers:
    return Copiers(tmp_path / "password")


def test_a_move_has_one_copier_and_the_way_back_another_in_its_place(world: Copiers) -> None:
    there = world.copiers.get("old", "new")
    assert there is world.copiers.get("old", "new")
    assert there is not world.copiers.get("new", "old")
    assert (world.jvms, world.jvm.closed) == (2, 1)
    for _ in range(2):
        world.copiers.close()
    assert world.jvm.closed == 2
    assert world.copiers.get("new", "old") is not there
    assert world.jvm.made == [], "nothing is started before something is copied"


def test_a_copier_knows_both_clusters_by_identity_and_address(world: Copiers) -> None:
    move = world.copiers.get("old", "new")
    move.copy(7)
    (settings,) = world.jvm.made
    addresses = [settings[side]["properties"]["metadataServiceUri"] for side in ("source", "target")]  # type: ignore[index]
    assert addresses == ["zk+hierarchical://old:2181/ledgers", "zk+hierarchical://new:2181/ledgers"]
    record = move.journal.find(7)
    assert record is not None
    assert (record.source, record.target) == ("i-old", "i-new")


def test_a_limit_holds_for_all_that_are_there_and_all_to_come(world: Copiers) -> None:
    world.copiers.get("old", "new").copy(7)
    world.copiers.limit(5_000)
    world.copiers.get("new", "old").copy(8)
    assert world.jvm.limits == [0, 5_000, 5_000]
    assert [settings["bytes_per_second"] for settings in world.jvm.made] == [0, 5_000]


def test_a_password_that_is_changed_later_is_that_of_the_next_copy(world: Copiers) -> None:
    for password in (b"secret", b"secret", b"rotated"):
        world.password_file.write_bytes(password)
        world.copiers.get("old", "new").copy(7)
    made = [settings["source"]["password"] for settings in world.jvm.made]  # type: ignore[index]
    assert made == [b64encode(each).decode() for each in (b"secret", b"secret", b"rotated")]
    assert (SwitchExecution().password(), SwitchExecution(ledger_password="x").password()) == (b"", b"x")
    assert world.jvm.closed == 1


def test_a_move_within_one_cluster_is_refused(world: Copiers) -> None:
    world.sessions.servers["new"].write("/ledgers/INSTANCEID", b"i-old")
    with pytest.raises(UserError, match="the same BookKeeper cluster"):
        world.copiers.get("old", "new")


@pytest.mark.parametrize("node", ["INSTANCEID", "LAYOUT"])
def test_without_identity_or_layout_there_is_no_copier_and_it_is_tried_again(world: Copiers, node: str) -> None:
    before = dict(world.sessions.servers["new"].tree)
    del world.sessions.servers["new"].tree[f"/ledgers/{node}"]
    with pytest.raises(UnreadError, match=f"/ledgers/{node}"):
        world.copiers.get("old", "new")
    world.sessions.servers["new"].tree = before
    assert world.copiers.get("old", "new") is world.copiers.get("old", "new")
