"""The doctor at a real ZooKeeper: what ACLs let us do, and whether its admin server answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import make_acl, make_digest_acl

from deploy.doctor import Verdict
from tests.system.doctor import examined
from tests.system.zookeeper import ZooKeeper

US = {"user": "headgate", "password": "not-shown-anywhere"}


@pytest.fixture
def chroot(zookeeper: ZooKeeper) -> Iterator[str]:
    """BookKeeper's nodes below `/patient`, which belong to somebody else."""
    theirs = [make_digest_acl("theirs", "secret-of-theirs", all=True)]
    with zookeeper.client() as client:
        client.add_auth("digest", "theirs:secret-of-theirs")
        for path in ("/patient", "/patient/ledgers", "/patient/ledgers/available", "/patient/ledgers/cookies"):
            client.create(path, acl=[*theirs, make_acl("world", "anyone", read=True)])
        client.create("/patient/bookies", b"{}", acl=theirs)
        yield "/patient"
        client.delete("/patient", recursive=True)


def settings(zookeeper: ZooKeeper, chroot: str, **blocks: Any) -> dict[str, Any]:
    connection = {"servers": zookeeper.servers + chroot, **US}
    isolation = {"quarantine": "on"}
    return {"clusters": {"c": {"zookeeper": connection, **blocks}}, "policies": {"isolation": isolation}}


def test_a_node_that_is_not_ours_comes_with_the_line_that_lets_us_in(zookeeper: ZooKeeper, chroot: str) -> None:
    given = settings(zookeeper, chroot, bookies={})
    before = examined(given)
    reading, writing = before["c, bookie collector"], before["c: ZooKeeper, write /bookies"]
    assert (reading.verdict, writing.verdict) == (Verdict.NOT_ALLOWED, Verdict.NOT_ALLOWED)
    assert any("add auth:headgate:r to it" in line and "getAcl /patient/bookies" in line for line in reading.remedies)
    assert US["password"] not in str(before)

    with zookeeper.client() as client:  # what the lines say, by whom the node belongs to
        client.add_auth("digest", "theirs:secret-of-theirs")
        acls = [
            make_digest_acl("theirs", "secret-of-theirs", all=True),
            make_digest_acl(US["user"], US["password"], read=True, write=True),
        ]
        client.set_acls("/patient/bookies", acls)
    after = examined(given)
    assert {asked: each.verdict for asked, each in after.items() if not each.is_good} == {}
    assert after["c: ZooKeeper, write /bookies"].detail == "/bookies may be changed"


def test_nothing_is_written_by_asking(zookeeper: ZooKeeper, chroot: str) -> None:
    with zookeeper.client() as client:
        before = client.exists("/patient").czxid, sorted(client.get_children("/patient"))
        zxid = client.last_zxid
        examined(settings(zookeeper, chroot, bookies={}, bookkeeper={"clusters": {"b": {}}, "bootstrap": "b"}))
        assert (client.exists("/patient").czxid, sorted(client.get_children("/patient"))) == before
        assert [path for path in ("/admin", "/schemas") if client.exists(f"/patient{path}")] == []
        assert client.exists("/patient").pzxid <= zxid


def test_a_zookeeper_in_which_no_broker_has_ever_registered_is_not_the_brokers(
    zookeeper: ZooKeeper, chroot: str
) -> None:
    given = settings(zookeeper, chroot, ownership={})
    missing = examined(given)["c: ZooKeeper, read /loadbalance/brokers"]
    assert (missing.is_good, missing.detail) == (False, "there is no /loadbalance/brokers")
    assert "Oxia or etcd" in missing.remedies[0]
    with zookeeper.client() as client:
        client.add_auth("digest", "theirs:secret-of-theirs")
        client.ensure_path(f"{chroot}/loadbalance/brokers")
        assert examined(given)["c: ZooKeeper, read /loadbalance/brokers"].is_good


def test_an_admin_server_that_is_off_comes_with_the_line_that_enables_it(
    bookkeeper_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    with ZooKeeper(tmp_path, bookkeeper_jars, properties={"admin.enableServer": "false"}) as closed:
        clusters = {"c": {"zookeeper": {"servers": closed.servers}, "sessions": {"admin_url": closed.admin_url}}}
        answer = examined({"clusters": clusters})
    assert (
        answer["c, session collector"]
        .remedies[0]
        .startswith("zoo.cfg of every server: admin.enableServer=true, and admin.serverPort as in http://{host}")
    )
