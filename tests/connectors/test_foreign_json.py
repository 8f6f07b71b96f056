"""JSON that others wrote: whatever they wrote, whoever reads it has one error, and it quotes nothing."""

from collections.abc import Callable

import httpx
import msgspec
import pytest

from connectors.foreign_json import UnreadableJsonError, build, parse, read_json
from connectors.pulsar.admin import role_of
from connectors.zookeeper.json_znodes import DamagedZnodeError, JsonZnodes
from connectors.zookeeper.server_admin import AdminServer
from connectors.zookeeper.session import StatusError
from tests.cases import for_each
from tests.fakes.zookeeper import Server


class Note(msgspec.Struct, frozen=True):
    text: str
    more: msgspec.Raw | None = None


DEEP = 100_000
STRANGE = {
    "nothing": b"",
    "cut": b'{"text":"secret-1',
    "no JSON": b"secret-1",
    "another shape": b'["secret-1"]',
    "not UTF-8": b'{"text":"secret-1\xff"}',
    "UTF-16": '{"text":"secret-1"}'.encode("utf-16"),
    "half a surrogate": b'{"text":"\\ud800"}',
    "an overlong zero": b'{"text":"\xc0\x80"}',
    "deep lists": b'{"else":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"else":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "deep and cut": b"[" * DEEP,
    "no number": b'{"text":NaN}',
    "a number without end": b'{"text":' + b"9" * DEEP + b"}",
}


@for_each("document", STRANGE.values(), ids=STRANGE)
def test_what_cannot_be_read_is_one_error_that_quotes_nothing(document: bytes) -> None:
    with pytest.raises(UnreadableJsonError) as caught:
        read_json(document, Note)
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_what_can_be_read_is() -> None:
    assert read_json(b'{"text":"a","else":1e999}', Note) == Note("a")


def ask_server(document: bytes) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=document))
    with pytest.raises(StatusError):
        AdminServer("http://z:8080", 5.0, transport=transport).role()


def read_znode(document: bytes) -> None:
    server = Server()
    server.write("/note", document)
    with pytest.raises(DamagedZnodeError):
        JsonZnodes(server.session()).get("/note", Note)


@for_each("read", [ask_server, read_znode])
@for_each("document", STRANGE.values(), ids=STRANGE)
def test_so_nobody_who_reads_it_is_stopped(read: Callable[[bytes], None], document: bytes) -> None:
    read(document)


def test_a_token_that_is_nested_without_end_names_no_role() -> None:
    assert role_of("a." + "W1tb" * 30_000 + ".c") is None


# Protobuf messages that are declared at run time.


MESSAGES = build(
    "test.positions",
    {
        "Position": {"ledgerId": "required int64 1", "kind": "optional Kind 2"},
        "Positions": {"each": "repeated Position 1"},
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
