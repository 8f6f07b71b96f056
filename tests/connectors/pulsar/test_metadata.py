"""Schema locators and cursors, as a real Pulsar 4.2.4 broker wrote them (captured/metadata.json), and their edits."""

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.pulsar.metadata import (
    CLUSTER_PROPERTY,
    ValuePart,
    decompress,
    difference,
    parse_cursor,
    parse_locator,
    set_attribution,
)
from policies.switching.ledgers import LedgerKind, Reference
from tests.cases import for_each
from tests.connectors.pulsar.znodes import cursor_info, schema_locator

CAPTURED = {
    name: base64.b64decode(data)
    for name, data in json.loads((Path(__file__).parent / "captured" / "metadata.json").read_text()).items()
}
LEDGERS = {"none": 4, "lz4": 10, "zlib": 16, "zstd": 22, "snappy": 28}
"""The cursor's ledger by the broker's own statistics, by how it compresses."""


def cursor_path(compression: str) -> str:
    return f"/managed-ledgers/t/n/persistent/{compression}/s1"


@pytest.mark.parametrize(("compression", "ledger_id"), LEDGERS.items(), ids=LEDGERS)
def test_a_cursor_names_its_ledger_and_cluster_however_it_is_compressed(compression: str, ledger_id: int) -> None:
    path = cursor_path(compression)
    assert parse_cursor(path, CAPTURED[path]) == Reference(LedgerKind.CURSOR, path, ledger_id, "new")
    assert CAPTURED[path].startswith(b"\x47\x78") is (compression != "none")


@pytest.mark.parametrize("compression", LEDGERS)
def test_a_cursor_of_a_broker_that_ended_in_order_keeps_no_ledger(compression: str) -> None:
    assert parse_cursor("/x", CAPTURED[f"closed {compression.upper()}"]).ledger_id == -1


def test_a_locator_names_the_ledger_of_each_version_and_of_the_current_one() -> None:
    path = "/schemas/t/n/none-avro"
    assert parse_locator(path, CAPTURED[path]) == [
        Reference(LedgerKind.SCHEMA, path, 3, None, "info"),
        Reference(LedgerKind.SCHEMA, path, 2, None, "index/0"),
        Reference(LedgerKind.SCHEMA, path, 3, None, "index/1"),
    ]


def test_a_position_says_which_cluster_holds_its_ledger() -> None:
    assert {each.attribution for each in parse_locator("/x", schema_locator(7, 8, attribution="new"))} == {"new"}
    assert parse_cursor("/x", cursor_info(7)).attribution is None


def test_other_properties_of_a_cursor_say_nothing_of_its_cluster() -> None:
    other, own = (cursor_info(7, attribution=name) for name in ("another", "new"))
    other = other.replace(b"_pulsar.bookieClusterName", b"_pulsar.bookieClusterZone")
    assert parse_cursor("/x", other).attribution is None
    # Concatenated messages are one message, with the properties of both.
    assert parse_cursor("/x", other + own).attribution == "new"


def test_the_znodes_of_other_tests_are_like_real_ones() -> None:
    real = parse_cursor("/x", CAPTURED[cursor_path("none")])
    assert parse_cursor("/x", cursor_info(4, attribution="new")) == real


NO_CURSORS = {
    "nothing": (b"", "lacks cursorsLedgerId"),
    "no protobuf": (b"\x00\x00", "is no ManagedCursorInfo"),
    "a header that is cut short": (b"\x47\x78\x00\x00", "lacks"),
    "a header longer than the value": (b"\x47\x78\x7f\xff\xff\xff\x08\x01", "lacks uncompressedSize"),
    "a compression to come": (b"\x47\x78\x00\x00\x00\x04\x08\x09\x10\x06abc", "lacks compressionType"),
    "a size beyond belief": (b"\x47\x78\x00\x00\x00\x08\x08\x02\x10\xff\xff\xff\xff\x07", "cannot be true"),
    "a negative size": (b"\x47\x78\x00\x00\x00\x0d\x08\x01\x10" + b"\xff" * 9 + b"\x01", "cannot be true"),
    "another size than it says": (
        b"\x47\x78\x00\x00\x00\x04\x08\x02\x10\x05" + zlib.compress(b"abcdef"),
        "has 6 bytes",
    ),
}


@for_each(("data", "why"), NO_CURSORS.values(), ids=NO_CURSORS)
def test_what_is_no_cursor_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_cursor("/x", data)


# Not LZ4: its blocks do not say how long they are, and Arrow fills what is missing with zeros.
@pytest.mark.parametrize("compression", ["zlib", "zstd", "snappy"])
def test_a_compressed_value_that_is_cut_short_is_never_taken_for_another(compression: str) -> None:
    whole, refused = CAPTURED[cursor_path(compression)], 0
    plain = decompress(whole)
    for length in range(2, len(whole)):
        try:
            assert decompress(whole[:length]) == plain  # what follows the data, such as a checksum, may be missing
        except ValueError:
            refused += 1
    assert refused > len(plain) // 2


def test_a_locator_that_lacks_a_position_is_refused() -> None:
    with pytest.raises(ValueError, match="it lacks info"):
        parse_locator("/x", b"")


# Attributing a ledger to a cluster changes that and nothing else, whatever else a znode holds.


LEGACY = frozenset({"old", None})


# --- the wire format, written by hand: the messages under test have no part in it


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    low = []
    while number > 127:
        low.append(number & 127 | 128)
        number >>= 7
    return bytes([*low, number])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def chunk(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def entry_of(name: str, value: str, unknown: bytes = b"") -> bytes:
    """A property."""
    return chunk(1, name.encode()) + chunk(2, value.encode()) + unknown


def cluster_is(name: str | None) -> list[bytes]:
    return [] if name is None else [entry_of(CLUSTER_PROPERTY, name)]


def position(ledger_id: int, entry_id: int, *properties: bytes, unknown: bytes = b"") -> bytes:
    return number(1, ledger_id) + number(2, entry_id) + unknown + b"".join(chunk(3, each) for each in properties)


def locator(*positions: bytes, unknown: bytes = b"") -> bytes:
    """The first is that of `info`; an entry has a field nobody declared as well, the version's hash."""
    entries = [number(1, n) + chunk(3, b"hash") + chunk(2, each) for n, each in enumerate(positions)]
    return unknown + chunk(1, entries[0]) + b"".join(chunk(2, each) for each in entries[1:])


def cursor(ledger_id: int, *properties: bytes, unknown: bytes = b"") -> bytes:
    return number(1, ledger_id) + unknown + b"".join(chunk(8, each) for each in properties)


def compressed(kind: int, codec: Callable[[bytes], bytes], plain: bytes) -> bytes:
    head = number(1, kind) + number(2, len(plain))
    return b"\x47\x78" + len(head).to_bytes(4, "big") + head + codec(plain)


def arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda plain: bytes(pa.compress(plain, codec=codec, asbytes=True))


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda plain: plain,
    "none": lambda plain: compressed(0, bytes, plain),
    "lz4": lambda plain: compressed(1, arrow("lz4_raw"), plain),
    "zlib": lambda plain: compressed(2, zlib.compress, plain),
    "zstd": lambda plain: compressed(3, arrow("zstd"), plain),
    "snappy": lambda plain: compressed(4, arrow("snappy"), plain),
}

MARK_DELETE = number(2, 77) + number(3, 5) + chunk(4, b"\x08\x01\x10\x02") + number(6, 1_700_000_000_000)
"""Of a cursor, in fields that we do not declare."""


def test_the_attribute_is_replaced_where_it_stands_and_else_appended() -> None:
    before, after = entry_of("a", "1"), entry_of("b", "2")
    plain = set_attribution(LedgerKind.CURSOR, cursor(7, before, *cluster_is("old"), after), 7, LEGACY, "new")
    assert plain == cursor(7, before, *cluster_is("new"), after)
    plain = set_attribution(LedgerKind.CURSOR, cursor(7, before, after), 7, LEGACY, "new")
    assert plain == cursor(7, before, after, *cluster_is("new"))
    plain = set_attribution(LedgerKind.CURSOR, cursor(7, *cluster_is("old"), *cluster_is("other")), 7, LEGACY, "new")
    assert plain == cursor(7, *cluster_is("new"), *cluster_is("new")), "one that stands twice says the same twice"


@for_each("codec", CODECS.values(), ids=CODECS)
def test_what_is_not_meant_stays_as_it_is_byte_for_byte(codec: Callable[[bytes], bytes]) -> None:
    for plain in (cursor(8, *cluster_is("old")), cursor(7, *cluster_is("third")), cursor(-1)):
        assert set_attribution(LedgerKind.CURSOR, data := codec(plain), 7, LEGACY, "new") is data


@for_each("codec", CODECS.values(), ids=CODECS)
def test_a_compressed_cursor_is_written_plain(codec: Callable[[bytes], bytes]) -> None:
    plain = cursor(7, entry_of("a", "1" * 500), unknown=MARK_DELETE)
    after = set_attribution(LedgerKind.CURSOR, data := codec(plain), 7, LEGACY, "new")
    assert after == decompress(after)
    assert MARK_DELETE in after
    assert parse_cursor("/x", after).attribution == "new"
    assert difference(LedgerKind.CURSOR, 7, data, after) == (ValuePart.ATTRIBUTION,)


@pytest.mark.parametrize(("compression", "ledger_id"), LEDGERS.items(), ids=LEDGERS)
def test_what_a_real_broker_wrote_is_attributed_and_taken_back(compression: str, ledger_id: int) -> None:
    data = CAPTURED[cursor_path(compression)]
    there = set_attribution(LedgerKind.CURSOR, data, ledger_id, {"new"}, "another")
    assert difference(LedgerKind.CURSOR, ledger_id, data, there) == (ValuePart.ATTRIBUTION,)
    back = set_attribution(LedgerKind.CURSOR, there, ledger_id, {"another"}, "new")
    assert difference(LedgerKind.CURSOR, ledger_id, data, back) == ()
    assert sorted(decompress(back)) == sorted(decompress(data))  # the same fields, in another order


def test_a_real_locator_is_attributed_and_taken_back() -> None:
    data = CAPTURED["/schemas/t/n/none-avro"]
    there = set_attribution(LedgerKind.SCHEMA, data, 3, LEGACY, "new")
    assert [each.attribution for each in parse_locator("/x", there)] == ["new", None, "new"]
    assert difference(LedgerKind.SCHEMA, 3, data, there) == (ValuePart.ATTRIBUTION,)


ANEW = {
    "both": (position(7, 0), position(9, 0, *cluster_is("new")), (ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID)),
    "neither": (position(7, 0), position(7, 0), ()),
    "the cluster alone": (position(7, 0), position(7, 0, *cluster_is("new")), (ValuePart.OTHER,)),
    "the id alone": (position(7, 0), position(9, 0), (ValuePart.OTHER,)),
    "to another id": (position(7, 0), position(10, 0, *cluster_is("new")), (ValuePart.OTHER,)),
    "of another ledger": (position(8, 0), position(9, 0, *cluster_is("new")), (ValuePart.OTHER,)),
    "the entry as well": (
        position(7, 0), position(9, 1, *cluster_is("new")),
        (ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID, ValuePart.OTHER),
    ),
}  # fmt: skip


@for_each(("before", "after", "parts"), ANEW.values(), ids=ANEW)
def test_a_new_id_and_its_cluster_differ_together_or_something_is_wrong(
    before: bytes, after: bytes, parts: tuple[ValuePart, ...]
) -> None:
    same = position(1, 1)
    assert difference(LedgerKind.SCHEMA, 7, locator(before, same), locator(after, same), 9) == parts


P = position(7, 0, entry_of("a", "1"), *cluster_is("old"))
DIFFERENCES = {
    "the same": (P, P, ()),
    "the cluster": (P, position(7, 0, entry_of("a", "1"), *cluster_is("new")), (ValuePart.ATTRIBUTION,)),
    "a cluster more": (position(7, 0), position(7, 0, *cluster_is("new")), (ValuePart.ATTRIBUTION,)),
    "a cluster less": (P, position(7, 0, entry_of("a", "1")), (ValuePart.ATTRIBUTION, ValuePart.OTHER)),
    "the ledger": (P, position(9, 0, entry_of("a", "1"), *cluster_is("old")), (ValuePart.LEDGER_ID,)),
    "the entry": (P, position(7, 1, entry_of("a", "1"), *cluster_is("old")), (ValuePart.OTHER,)),
    "a property's value": (P, position(7, 0, entry_of("a", "2"), *cluster_is("old")), (ValuePart.OTHER,)),
    "properties in another order": (
        position(7, 0, entry_of("a", "1"), entry_of("b", "2")),
        position(7, 0, entry_of("b", "2"), entry_of("a", "1")),
        (ValuePart.OTHER,),
    ),
    "a field within the attribute": (
        position(7, 0, entry_of(CLUSTER_PROPERTY, "old", number(5, 1))),
        position(7, 0, entry_of(CLUSTER_PROPERTY, "new")),
        (ValuePart.ATTRIBUTION, ValuePart.OTHER),
    ),
    "a field within a position": (
        position(7, 0, unknown=chunk(9, b"x")),
        position(7, 0, unknown=chunk(9, b"y")),
        (ValuePart.OTHER,),
    ),
    "another ledger's cluster": (position(8, 0), position(8, 0, *cluster_is("new")), (ValuePart.OTHER,)),
}


@for_each(("before", "after", "parts"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_difference_of_two_locators_has_its_name(before: bytes, after: bytes, parts: tuple[ValuePart, ...]) -> None:
    same = position(1, 1)
    for one, two in ((locator(before, same), locator(after, same)), (locator(same, before), locator(same, after))):
        assert difference(LedgerKind.SCHEMA, 7, one, two) == parts


def test_fields_nobody_declared_and_the_number_of_positions_are_compared_too() -> None:
    one = position(7, 0)
    for after in (locator(one, one), locator(one, unknown=chunk(9, b"x")), locator(one) + chunk(1, chunk(3, b"y"))):
        assert difference(LedgerKind.SCHEMA, 7, locator(one), after) == (ValuePart.OTHER,)
    plain = cursor(7, unknown=MARK_DELETE)
    assert difference(LedgerKind.CURSOR, 7, plain, cursor(7)) == (ValuePart.OTHER,)


def test_a_cursor_means_the_same_however_it_is_compressed() -> None:
    plain = cursor(7, entry_of("a", "1"), unknown=MARK_DELETE)
    for codec in CODECS.values():
        assert difference(LedgerKind.CURSOR, 7, plain, codec(plain)) == ()


NO_ZNODES = {"no locator": (LedgerKind.SCHEMA, b""), "no cursor": (LedgerKind.CURSOR, b"\x47\x78\x00")}


@pytest.mark.parametrize(("kind", "data"), NO_ZNODES.values(), ids=NO_ZNODES)
def test_what_cannot_be_read_is_not_changed(kind: LedgerKind, data: bytes) -> None:
    with pytest.raises(ValueError, match="it is no"):
        set_attribution(kind, data, 7, LEGACY, "new")
    with pytest.raises(ValueError, match="it is no"):
        difference(kind, 7, schema_locator(7) if kind is LedgerKind.SCHEMA else cursor_info(7), data)


# Not negative, as of ten bytes of such a number the last one may differ and mean the same.
small = st.integers(5, 8)
large = st.integers(0, 2**63 - 1)
texts = st.text(max_size=6).filter(lambda name: name != CLUSTER_PROPERTY)


def join_fields(fields: list[tuple[int, int | bytes]]) -> bytes:
    return b"".join(number(at, value) if isinstance(value, int) else chunk(at, value) for at, value in fields)


unknown_fields = st.lists(st.tuples(st.integers(9, 40), st.one_of(large, st.binary(max_size=6)))).map(join_fields)
"""Fields that none of the messages declares."""
others = st.lists(st.builds(entry_of, texts, texts, unknown_fields), max_size=2)
clusters = st.sampled_from(["old", "third", "new", ""])
attributes = st.lists(st.builds(entry_of, st.just(CLUSTER_PROPERTY), clusters, unknown_fields), max_size=1)
properties = st.builds(lambda before, own, after: [*before, *own, *after], others, attributes, others)
positions = st.builds(
    lambda ledger_id, entry_id, held, unknown: position(ledger_id, entry_id, *held, unknown=unknown),
    small, large, properties, unknown_fields,
)  # fmt: skip
locators = st.builds(
    lambda held, unknown: (LedgerKind.SCHEMA, locator(*held, unknown=unknown)),
    st.lists(positions, min_size=1, max_size=4), unknown_fields,
)  # fmt: skip
cursors = st.builds(
    lambda codec, ledger_id, held, unknown: (
        LedgerKind.CURSOR, codec(cursor(ledger_id, *held, unknown=MARK_DELETE + unknown)),
    ),
    st.sampled_from(list(CODECS.values())), small, properties, unknown_fields,
)  # fmt: skip


def meaning(kind: LedgerKind, data: bytes) -> list[tuple[int, str | None]]:
    references = parse_locator("/x", data) if kind is LedgerKind.SCHEMA else [parse_cursor("/x", data)]
    return [(each.ledger_id, each.attribution) for each in references]


def fields_of(kind: LedgerKind, data: bytes) -> list[int]:
    """All bytes there are, in order of their size: what is kept, if in another order, is neither more nor less."""
    return sorted(decompress(data) if kind is LedgerKind.CURSOR else data)


@given(st.one_of(locators, cursors), st.sampled_from([{"old"}, {None}, {"old", None}]), st.sampled_from([7, 2**40]))
def test_only_the_attribution_and_the_id_of_the_ledger_change(
    znode: tuple[LedgerKind, bytes], owners: set[str | None], new_id: int
) -> None:
    kind, data = znode
    after = set_attribution(kind, data, 7, owners, "new", new_id)
    before = meaning(kind, data)
    assert meaning(kind, after) == [(new_id, "new") if e[0] == 7 and e[1] in owners else e for e in before]
    changes = any(ledger_id == 7 and cluster in owners for ledger_id, cluster in before)
    parts = (ValuePart.ATTRIBUTION,) if new_id == 7 else (ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID)
    assert difference(kind, 7, data, after, new_id) == (parts if changes else ())
    assert changes or after is data
    assert set_attribution(kind, after, 7, owners, "new", new_id) is after


@given(st.one_of(locators, cursors), st.sampled_from([7, 2**40]))
def test_what_is_taken_back_is_as_it_was(znode: tuple[LedgerKind, bytes], new_id: int) -> None:
    kind, data = znode
    there = set_attribution(kind, data, 7, {"old"}, "fourth", new_id)
    back = set_attribution(kind, there, new_id, {"fourth"}, "old", 7)
    assert difference(kind, 7, data, back) == ()
    assert fields_of(kind, back) == fields_of(kind, data)


@given(st.one_of(locators, cursors), st.data())
def test_a_single_damaged_byte_is_never_nothing(znode: tuple[LedgerKind, bytes], draw: st.DataObject) -> None:
    kind, data = znode
    plain = decompress(data) if kind is LedgerKind.CURSOR else data
    at = draw.draw(st.integers(0, len(plain) - 1))
    damaged = plain[:at] + bytes([plain[at] ^ draw.draw(st.integers(1, 255))]) + plain[at + 1 :]
    try:
        parts = difference(kind, 7, plain, damaged)
    except ValueError:
        return  # none at all
    assert parts
