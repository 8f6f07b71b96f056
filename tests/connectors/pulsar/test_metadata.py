"""Schema locators and cursors, as a real Pulsar 4.2.4 broker wrote them (captured/metadata.json)."""

import base64
import json
import zlib
from pathlib import Path

import pytest

from connectors.pulsar.metadata import decompress, parse_cursor, parse_locator
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
