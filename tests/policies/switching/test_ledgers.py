"""Where a ledger's metadata lies, in both layouts and on both sides of their boundary."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.switching.ledgers import (
    EMPTY_LONG,
    EMPTY_SHORT,
    IdGenerator,
    Layout,
    hob_beyond,
    hob_name,
    id_at,
    next_sequence,
    parse_layout,
    path_of,
)
from tests.cases import for_each

SHORT, LONG = Layout.HIERARCHICAL, Layout.LONG_HIERARCHICAL
ids = st.integers(0, 2**63 - 1) | st.sampled_from([0, 1, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1])


@for_each(
    ("layout", "ledger_id", "path"),
    [
        (SHORT, 0, "/00/0000/L0000"),
        (SHORT, 16956902, "/00/1695/L6902"),
        (SHORT, 2**31 - 2, "/21/4748/L3646"),
        (SHORT, 2**31 - 1, "/000/0000/0021/4748/L3647"),
        (SHORT, 4294967296, "/000/0000/0042/9496/L7296"),
        (SHORT, 4294967300, "/000/0000/0042/9496/L7300"),
        (SHORT, 2**63 - 1, "/922/3372/0368/5477/L5807"),
        (LONG, 0, "/000/0000/0000/0000/L0000"),
        (LONG, 16956902, "/000/0000/0000/1695/L6902"),
        (LONG, 2**31 - 2, "/000/0000/0021/4748/L3646"),
        (LONG, 4294967296, "/000/0000/0042/9496/L7296"),
    ],
)
def test_a_ledger_lies_where_bookkeeper_puts_it(layout: Layout, ledger_id: int, path: str) -> None:
    assert path_of(layout, ledger_id) == path
    assert id_at(layout, path) == ledger_id


@given(st.sampled_from(Layout), ids)
def test_the_path_of_an_id_leads_back_to_it(layout: Layout, ledger_id: int) -> None:
    assert id_at(layout, path_of(layout, ledger_id)) == ledger_id


@for_each("layout", Layout)
@for_each("ledger_id", [-1, -2, 2**63])
def test_what_is_no_id_has_no_path(layout: Layout, ledger_id: int) -> None:
    with pytest.raises(ValueError, match="is no ledger id"):
        path_of(layout, ledger_id)


@for_each(
    ("layout", "path"),
    [
        (SHORT, "/idgen/ID-0000000001"),
        (SHORT, "/available/readonly"),
        (SHORT, "/00/1695/6902"),
        (SHORT, "/00/1695/L690"),
        (SHORT, "/000/0000/0000/1695/L6902"),
        (SHORT, "/21/4748/L3647"),
        (LONG, "/00/1695/L6902"),
        (LONG, "/999/9999/9999/9999/L9999"),
        (LONG, "/000/0000/0000/1695/L6902/x"),
        (LONG, "/\u0660\u0660\u0660/0000/0000/1695/L6902"),
    ],
)
def test_no_ledger_lies_where_bookkeeper_would_not_put_one(layout: Layout, path: str) -> None:
    assert id_at(layout, path) is None


@for_each(
    ("text", "layout"),
    [
        ("2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1", SHORT),
        ("2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1\n", LONG),
        ("2\nhierarchical:1", SHORT),
        ("1\nflat:1", None),
        ("2\norg.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory:1", None),
        ("", None),
        ("2", None),
    ],
)
def test_a_layout_that_may_not_hold_every_id_is_unknown(text: str, layout: Layout | None) -> None:
    assert parse_layout(text) is layout


def shown(created: int, deleted: int) -> tuple[int, int]:
    """(cversion, children) as ZooKeeper shows them: cversion = 2 * created - children in 32 bits with a sign."""
    children = created - deleted
    wrapped = (2 * created - children) % 2**32
    return (wrapped - 2**32 if wrapped >= 2**31 else wrapped, children)


@given(st.integers(0, 2**31 - 1), st.integers(0, 1000))
def test_the_next_sequence_counts_what_was_ever_created(created: int, kept: int) -> None:
    cversion, children = shown(created, max(0, created - kept))
    assert next_sequence(cversion, children) == created


@for_each(
    ("cversion", "children", "number"),
    [(0, 0, 0), (1, 1, 1), (2, 0, 1), (20, 0, 10), (2**31 - 1, 1, 2**30), (-(2**31), 0, 2**30), (-2, 0, 2**31 - 1)],
)
def test_the_counters_may_have_wrapped(cversion: int, children: int, number: int) -> None:
    assert next_sequence(cversion, children) == number


@for_each(
    ("generator", "next_id", "ceiling"),
    [
        (EMPTY_SHORT, 0, 2**31 - 1),
        (IdGenerator(None, 20, 0), 10, 2**31 - 1),
        (EMPTY_LONG, 2**32, 2**32 + 2**31 - 1),
        (IdGenerator(1, 8, 2), 2**32 + 5, 2**32 + 2**31 - 1),
        (IdGenerator(7, 0, 0), 7 * 2**32, 7 * 2**32 + 2**31 - 1),
        (IdGenerator(None, *shown(2**31 - 2, 2**31 - 2)), 2**31 - 2, 2**32 + 2**31 - 1),
        (IdGenerator(3, *shown(2**31 - 2**20, 2**31 - 2**20)), 3 * 2**32 + 2**31 - 2**20, 4 * 2**32 + 2**31 - 1),
    ],
    ids=["nothing yet", "short", "empty idgen-long", "HOB-1", "a fresh HOB-7", "short, full", "HOB-3, nearly full"],
)
def test_a_generator_tells_its_next_id_and_how_far_it_may_get(generator: Any, next_id: int, ceiling: int) -> None:
    assert (generator.next_id, generator.ceiling) == (next_id, ceiling)


@given(st.integers(0, 2**62))
def test_a_hob_beyond_an_id_is_the_least_that_clears_it(ledger_id: int) -> None:
    hob = hob_beyond(ledger_id)
    assert hob << 32 > ledger_id
    assert (hob - 1) << 32 <= ledger_id


def test_a_hob_has_ten_digits() -> None:
    assert hob_name(1) == "HOB-0000000001"
    assert IdGenerator(1, 0, 0).ceiling == 2**32 + 2**31 - 1
