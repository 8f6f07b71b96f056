"""What an inventory is on the wire: nothing of it lost, nothing twice, and each record small."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.switching.cluster_reader import MAX_PART_BYTES, MAX_PART_REFERENCES, make_inventory
from policies.observations import Reading
from policies.switching.fold import InventorySeen, assemble
from policies.switching.ledgers import Ledger, LedgerKind, LedgerState, Reference
from policies.switching.readings import SwitchInventory, SwitchInventoryPart
from policies.switching.registration import KIND
from policies.units import UserError, from_millis
from policies.wire import EventReader, observation_event

NOW_MS = 1_700_000_000_000
READER: EventReader[Any] = EventReader(KIND.readings)


def cursor(number: int, ledger_id: int | None = None, **more: Any) -> Reference:
    where = f"/managed-ledgers/t/n/persistent/topic-{number}/s"
    return Reference(LedgerKind.CURSOR, where, number if ledger_id is None else ledger_id, **more)


def ledger(ledger_id: int, **more: Any) -> Ledger:
    plain: dict[str, Any] = {"state": LedgerState.CLOSED, "last_entry_id": 0, "length_bytes": 7}
    return Ledger(ledger_id=ledger_id, **(plain | more))


def told(references: Iterable[Reference], existing: Mapping[int, Ledger] | None = None) -> list[Reading]:
    given = make_inventory("c1", "i1", references, existing or {}, "new", 42)
    return list(given)


def record(reading: Reading) -> bytes:
    return observation_event(reading, id="e", source="test", time=from_millis(NOW_MS))


def parts(readings: Sequence[Reading]) -> list[SwitchInventoryPart]:
    return [r for r in readings if isinstance(r, SwitchInventoryPart)]


def heard(readings: Iterable[Reading]) -> InventorySeen | None:
    """What the policy makes of it, after a trip over the wire."""
    known, whole = None, None
    for reading in readings:
        event = READER.read(record(reading))
        known, seen = assemble(known, event.data, NOW_MS)
        whole = seen or whole
    return whole


REFERENCES = st.lists(
    st.builds(
        Reference,
        st.sampled_from(LedgerKind),
        st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable()).map(lambda text: f"/{text}"),
        st.integers(-1, 30),
        st.sampled_from([None, "old", "new"]),
        st.sampled_from(["", "info", "index/3"]),
    ),
    max_size=60,
)
LEDGERS = st.lists(
    st.builds(
        Ledger,
        ledger_id=st.integers(0, 40),
        state=st.sampled_from(LedgerState),
        last_entry_id=st.integers(-1, 9),
        length_bytes=st.integers(0, 9),
        custom_metadata=st.sampled_from([(), (("a", "YQ=="), ("b", ""))]),
        created_ms=st.none() | st.integers(0, 9),
    ),
    max_size=20,
).map(lambda found: {each.ledger_id: each for each in found})


@given(REFERENCES, LEDGERS)
def test_what_is_told_is_what_is_heard(references: list[Reference], existing: dict[int, Ledger]) -> None:
    whole = heard(told(references, existing))
    assert whole is not None
    assert whole.references == tuple(references)
    assert whole.existing == existing
    assert (whole.target, whole.at_ms) == ("new", NOW_MS - 42)


@given(REFERENCES, LEDGERS, st.data())
def test_without_any_one_of_its_records_it_does_not_count(
    references: list[Reference], existing: dict[int, Ledger], data: st.DataObject
) -> None:
    readings = told(references, existing)
    del readings[data.draw(st.integers(0, len(readings) - 1))]
    assert heard(readings) is None


def test_the_manifest_comes_last_and_counts_all() -> None:
    *others, last = told([cursor(n) for n in range(2 * MAX_PART_REFERENCES + 1)], {5: ledger(5)})
    assert isinstance(last, SwitchInventory)
    assert [p.part for p in parts(others)] == [0, 1, 2]
    assert (last.parts, last.references) == (3, 2 * MAX_PART_REFERENCES + 1)
    assert [len(p.references) for p in parts(others)] == [MAX_PART_REFERENCES, MAX_PART_REFERENCES, 1]


def test_a_ledger_that_many_refer_to_is_told_once() -> None:
    readings = told([cursor(n, 7) for n in range(3 * MAX_PART_REFERENCES)], {7: ledger(7)})
    assert [len(p.existing) for p in parts(readings)] == [1, 0, 0, 0]


def test_references_are_read_only_as_parts_are_taken() -> None:
    read: list[int] = []

    def reading() -> Iterable[Reference]:
        for number in range(5 * MAX_PART_REFERENCES):
            read.append(number)
            yield cursor(number)

    readings = make_inventory("c1", "i1", reading(), {}, "new", 0)
    next(readings)
    assert len(read) == MAX_PART_REFERENCES


HEAVY = [
    ("long names", [cursor(1, position="ü" * 900) for _ in range(5_000)], {}),
    (
        "rich metadata",
        [cursor(n) for n in range(5_000)],
        {n: ledger(n, custom_metadata=(("k", "A" * 1_000),)) for n in range(5_000)},
    ),
    ("ledgers nobody refers to", [], {n: ledger(n) for n in range(20_000)}),
]


@pytest.mark.parametrize(("references", "existing"), [case[1:] for case in HEAVY], ids=[case[0] for case in HEAVY])
def test_a_record_is_small_whatever_is_in_it(references: list[Reference], existing: dict[int, Ledger]) -> None:
    readings = told(references, existing)
    assert max(len(record(r)) for r in readings) < MAX_PART_BYTES + 16_384
    assert len(readings) > 2
    assert {each.ledger_id for p in parts(readings) for each in p.existing} == set(existing)


def test_a_reference_to_an_impossible_id_names_its_znode() -> None:
    with pytest.raises(UserError, match=r"^/managed-ledgers/t/n/persistent/topic-4/s: .*ledger_id.*mend this znode$"):
        told([cursor(4, -7)])
