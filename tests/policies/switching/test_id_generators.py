"""The next ledger id, read without burning one."""

from hypothesis import given
from hypothesis import strategies as st

from policies.switching.ledgers import EMPTY_LONG, EMPTY_SHORT, IdGenerator, hob_beyond, hob_name, next_sequence
from tests.cases import for_each


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
    ids=[
        "nothing yet", "short", "empty idgen-long", "HOB-1", "a fresh HOB-7", "short, full", "HOB-3, nearly full",
    ],
)  # fmt: skip
def test_a_generator_tells_its_next_id_and_how_far_it_may_get(
    generator: IdGenerator, next_id: int, ceiling: int
) -> None:
    assert (generator.next_id, generator.ceiling) == (next_id, ceiling)


@given(st.integers(0, 2**62))
def test_a_hob_beyond_an_id_is_the_least_that_clears_it(ledger_id: int) -> None:
    hob = hob_beyond(ledger_id)
    assert hob << 32 > ledger_id
    assert (hob - 1) << 32 <= ledger_id


def test_a_hob_has_ten_digits() -> None:
    assert hob_name(1) == "HOB-0000000001"
    assert IdGenerator(1, 0, 0).ceiling == 2**32 + 2**31 - 1
