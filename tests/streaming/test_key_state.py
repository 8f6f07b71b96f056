"""The stored state of a key: smaller than its msgpack, the same when it is read, and decoded once."""

from hypothesis import given
from hypothesis import strategies as st

from streaming.key_state import NEVER_STEPPED, compress, decode, decompress, encode

MSGPACK = st.binary(min_size=1).map(lambda rest: b"\x9b" + rest)
"""Arrays, as states are."""


@given(MSGPACK, st.integers(1, 3000))
def test_what_is_packed_is_unpacked_as_it_was(value: bytes, times: int) -> None:
    assert decompress(compress(value * times)) == value * times


@given(MSGPACK)
def test_nothing_gets_larger(value: bytes) -> None:
    assert len(compress(value)) <= len(value)


def test_what_repeats_itself_gets_much_smaller() -> None:
    assert len(compress(b"\x9b" + 40_000 * b"volume")) < 2000


def test_what_is_kept_of_a_key_is_recalled() -> None:
    assert decode(encode(NEVER_STEPPED)) == NEVER_STEPPED
