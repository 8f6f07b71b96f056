"""The lease: one holder at a time, each with a greater token, whatever crashes or is written by hand."""

from os import getpid

import pytest
from kazoo.exceptions import ConnectionLoss

from connectors.switching.lease import HeldLease, ZooKeeperLease
from connectors.zookeeper.json_znodes import JsonZnodes, Step, ZnodeError
from tests.fakes.zookeeper import Server

PATH = "/admin/bookie-clusters/lease"


def test_a_free_lease_is_taken_and_stays_the_holders() -> None:
    lease = ZooKeeperLease(Server().session(), holder="h1")
    assert [lease.renew() for _ in range(2)] == [HeldLease(1, "h1")] * 2
    assert ZooKeeperLease(Server().session()).holder.endswith(f":{getpid()}"), "its name for people, unless given"


def test_another_waits_until_it_is_given_up_and_then_has_a_greater_token() -> None:
    server = Server()
    first, second = (ZooKeeperLease(server.session(), holder=holder) for holder in ("h1", "h2"))
    first.renew()
    assert second.renew() is None
    second.release()
    assert first.renew() == HeldLease(1, "h1"), "it releases only its own"
    first.release()
    assert second.renew() == HeldLease(2, "h2")
    assert first.renew() is None


def test_it_is_free_again_when_its_holders_session_ends() -> None:
    server = Server()
    session = server.session()
    ZooKeeperLease(session, holder="h1").renew()
    server.end(session)
    assert ZooKeeperLease(server.session(), holder="h2").renew() == HeldLease(2, "h2")


def test_a_token_that_was_written_by_hand_is_nobodys() -> None:
    server = Server()
    lease = ZooKeeperLease(server.session(), holder="h1")
    lease.renew()
    server.write(PATH, b'{"token": 7, "holder": "h1"}')
    assert lease.renew() == HeldLease(8, "h1")


def test_who_is_outrun_while_taking_it_does_not_have_it() -> None:
    server = Server()
    slow, other = (ZooKeeperLease(server.session(), holder=holder) for holder in ("h1", "h2"))
    slow.renew()
    slow.release()
    server.before_commit.append(other.renew)
    assert slow.renew() is None
    assert other.renew() == HeldLease(2, "h2")


@pytest.mark.parametrize("trouble", ["away", "damaged"])
def test_what_is_not_known_is_no_lease(trouble: str) -> None:
    server = Server()
    lease = ZooKeeperLease(server.session(), holder="h1")
    lease.renew()
    if trouble == "away":
        server.away = ConnectionLoss()
    else:
        server.write(PATH, b'{"token": "many"}')
    with pytest.raises(ZnodeError):
        lease.renew()


def test_a_token_whose_giving_was_not_answered_is_held_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    server, commit = Server(), JsonZnodes.commit
    server.write(PATH, b'{"token": 7, "holder": ""}')
    lease = ZooKeeperLease(server.session(), holder="h1")

    def unanswered(nodes: JsonZnodes, *steps: Step) -> bool:
        commit(nodes, *steps)
        monkeypatch.setattr(JsonZnodes, "commit", commit)
        raise ZnodeError("the connection was lost")

    monkeypatch.setattr(JsonZnodes, "commit", unanswered)
    with pytest.raises(ZnodeError):
        lease.renew()
    assert lease.renew() == HeldLease(8, "h1")
