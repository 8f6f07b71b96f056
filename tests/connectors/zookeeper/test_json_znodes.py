"""JSON in znodes, by conditional writes: several are written whole or not at all."""

import msgspec
import pytest
from kazoo.exceptions import ConnectionLoss

from connectors.zookeeper.json_znodes import JsonZnodes, ZnodeError, check, create, create_or_put, delete, put
from tests.fakes.zookeeper import Server


class Note(msgspec.Struct, frozen=True):
    text: str


@pytest.fixture
def server() -> Server:
    server = Server()
    server.write("/notes", b"")
    return server


@pytest.fixture
def znodes(server: Server) -> JsonZnodes:
    return JsonZnodes(server.session())


def test_what_was_written_is_read_with_its_version(znodes: JsonZnodes) -> None:
    assert znodes.get("/notes/a", Note) is None
    assert znodes.commit(create("/notes/a", Note("first")))
    assert znodes.commit(put("/notes/a", Note("second"), 0))
    found = znodes.get("/notes/a", Note)
    assert found is not None
    assert (found.value, found.version, found.ephemeral_owner) == (Note("second"), 1, 0)
    assert found.mzxid > found.czxid


def test_all_steps_are_done_or_none(znodes: JsonZnodes, server: Server) -> None:
    znodes.commit(create("/notes/a", Note("first")))
    before = dict(server.tree)
    assert not znodes.commit(put("/notes/a", Note("second"), 0), check("/notes/a", 5))
    assert not znodes.commit(create("/notes/b", Note("new")), create("/notes/a", Note("again")))
    assert not znodes.commit(create("/notes/b", Note("new")), delete("/notes/missing", 0))
    assert server.tree == before
    assert znodes.commit(check("/notes/a", 0), delete("/notes/a", 0))
    assert znodes.get("/notes/a", Note) is None


def test_what_was_found_must_still_be_as_it_was_found(znodes: JsonZnodes, server: Server) -> None:
    missing = znodes.get("/notes/a", Note)
    assert znodes.commit(create_or_put("/notes/a", Note("first"), missing))
    assert not znodes.commit(create_or_put("/notes/a", Note("late"), missing))
    found = znodes.get("/notes/a", Note)
    server.before_commit.append(lambda: server.write("/notes/a", b'{"text": "theirs"}'))
    assert not znodes.commit(create_or_put("/notes/a", Note("ours"), found))
    now = znodes.get("/notes/a", Note)
    assert now is not None
    assert now.value == Note("theirs")


def test_a_znode_may_live_as_long_as_the_session(server: Server) -> None:
    session = server.session()
    znodes = JsonZnodes(session)
    znodes.commit(create("/notes/mine", Note("here"), ephemeral=True))
    found = znodes.get("/notes/mine", Note)
    assert found is not None
    assert found.ephemeral_owner == znodes.session_id() == session.id
    server.end(session)
    assert JsonZnodes(server.session()).get("/notes/mine", Note) is None


def test_children_are_sorted_and_a_missing_znode_has_none(znodes: JsonZnodes) -> None:
    for name in ("b", "a"):
        znodes.commit(create(f"/notes/{name}", Note(name)))
    assert znodes.children("/notes") == ["a", "b"]
    assert znodes.children("/missing") == []


def test_ensuring_a_path_makes_what_is_missing_and_changes_nothing_else(znodes: JsonZnodes, server: Server) -> None:
    znodes.commit(create("/notes/a", Note("first")))
    znodes.ensure("/notes/a/b/c")
    znodes.ensure("/notes/a/b/c")
    assert znodes.children("/notes/a/b") == ["c"]
    found = znodes.get("/notes/a", Note)
    assert found is not None
    assert found.value == Note("first")


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"text": 1}', b"\xff"])
def test_what_is_damaged_is_named_and_not_taken_for_missing(znodes: JsonZnodes, server: Server, damage: bytes) -> None:
    server.write("/notes/a", damage)
    with pytest.raises(ZnodeError, match="/notes/a is damaged"):
        znodes.get("/notes/a", Note)


def test_without_zookeeper_each_call_says_so_in_one_line(znodes: JsonZnodes, server: Server) -> None:
    server.away = ConnectionLoss()
    for ask in (
        lambda: znodes.get("/notes/a", Note),
        lambda: znodes.children("/notes"),
        lambda: znodes.ensure("/notes/a"),
        lambda: znodes.catch_up("/notes"),
        lambda: znodes.commit(create("/notes/a", Note("first"))),
    ):
        with pytest.raises(ZnodeError, match=r"^[^\n]*c1: the connection was lost$"):
            ask()
