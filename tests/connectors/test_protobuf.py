"""Protobuf messages that are declared at run time."""

import pytest

from connectors.foreign_json import build, optional, parse, repeated, required

MESSAGES = build(
    "test.positions",
    {
        "Position": {"ledgerId": required("int64", 1), "kind": optional("Kind", 2)},
        "Positions": {"each": repeated("Position", 1)},
    },
    {"Kind": {"DATA": 1, "INDEX": 2}},
)
POSITION, POSITIONS = MESSAGES["Position"], MESSAGES["Positions"]


def test_what_was_written_is_read() -> None:
    written = POSITIONS(each=[POSITION(ledgerId=7, kind=2), POSITION(ledgerId=8)])
    read = parse(POSITIONS, written.SerializeToString())
    assert [(each.ledgerId, each.kind) for each in read.each] == [(7, 2), (8, 1)]


def test_fields_that_are_not_declared_are_skipped() -> None:
    unknown = bytes([0x9A, 0x06, 0x03]) + b"new"  # field 99, three bytes
    assert parse(POSITION, POSITION(ledgerId=7).SerializeToString() + unknown).ledgerId == 7


@pytest.mark.parametrize(
    ("data", "why"), [(b"", "it lacks ledgerId"), (b"\xff\xff\xff", "it is no Position")], ids=["lacking", "noise"]
)
def test_what_is_no_such_message_is_refused_without_quoting_it(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse(POSITION, data)
    assert refused.value.__cause__ is None


def test_a_message_inside_that_lacks_something_is_named() -> None:
    with pytest.raises(ValueError, match=r"it lacks each\[0\]\.ledgerId"):
        parse(POSITIONS, b"\x0a\x00")
