"""JSON that others wrote: whatever they wrote, whoever reads it has one error, and it quotes nothing."""

from collections.abc import Callable

import httpx
import msgspec
import pytest

from connectors.foreign_json import UnreadableJsonError, read_json
from connectors.pulsar.probes import role_of
from connectors.zookeeper.json_znodes import DamagedZnodeError, JsonZnodes
from connectors.zookeeper.server_admin import AdminServer
from connectors.zookeeper.session import StatusError
from tests.cases import for_each
from tests.connectors.switching.memory_zookeeper import Server


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
