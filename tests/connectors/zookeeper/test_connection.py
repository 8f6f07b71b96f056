"""How to reach an ensemble: what is understood, what is refused, and no secret in any message."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from connectors.isolation.registration import WatchedBookies
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.units import UserError
from tests.cases import for_each

SECRET = "hunter2-never-shown"

SERVERS: dict[str, tuple[str, list[str], str]] = {
    "one": ("zk:2181", ["zk:2181"], ""),
    "several": ("zk-1.example.org:2181, zk_2:2182", ["zk-1.example.org:2181", "zk_2:2182"], ""),
    "with a chroot": ("zk1:2181,zk2:2181/pulsar/a.b", ["zk1:2181", "zk2:2181"], "/pulsar/a.b"),
    "with a slash and no more": ("zk:2181/", ["zk:2181"], ""),
    "addresses": ("127.0.0.1:2181,[::1]:2181/c", ["127.0.0.1:2181", "[::1]:2181"], "/c"),
}


@pytest.mark.parametrize(("servers", "hosts", "chroot"), SERVERS.values(), ids=SERVERS)
def test_servers_and_chroot_are_told_apart(servers: str, hosts: list[str], chroot: str) -> None:
    connection = ZooKeeperConnection(servers=servers)
    assert (connection.hosts(), connection.chroot) == (hosts, chroot)


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing": ({"servers": ""}, "servers", "its entry 1 is not host:port"),
    "no port": ({"servers": "zk1:2181,zk2"}, "servers", "its entry 2 is not host:port"),
    "no such port": ({"servers": "zk:70000"}, "servers", "its entry 1 is not host:port"),
    "port 0": ({"servers": "zk:0"}, "servers", "its entry 1 is not host:port"),
    "an empty part of a name": ({"servers": "zk..org:2181"}, "servers", "its entry 1 is not host:port"),
    "a name no resolver takes": ({"servers": f"{'x' * 64}:2181"}, "servers", "its entry 1 is not host:port"),
    "a chroot at each": ({"servers": "zk1:2181/c,zk2:2181//c"}, "servers", "a chroot stands once"),
    "the same chroot at each": (
        {"servers": "zk-1:2181/pulsar,zk-2:2181/pulsar"},
        "servers",
        "a chroot stands once, after the last server: zk-1:2181,zk-2:2181/pulsar",
    ),
    "a chroot that climbs": ({"servers": "zk1:2181/c/../d"}, "servers", "no chroot"),
    "a password in the servers": ({"servers": f"u:{SECRET}@zk:2181"}, "servers", "its entry 1 is not host:port"),
    "a user alone": ({"user": "u"}, "password", "is needed with user"),
    "a password alone": ({"password": SECRET}, "user", "is needed with a password"),
    "both passwords": ({"user": "u", "password": SECRET, "password_file": "/dev/null"}, "password", "give either"),
    "a colon in the user": ({"user": "u:v", "password": SECRET}, "user", "must not contain a colon"),
    "a file that is not there": ({"user": "u", "password_file": "/nowhere"}, "password_file", "/nowhere cannot be"),
    "a mistyped key": ({"pasword": SECRET}, "pasword", "Extra inputs are not permitted"),
    "no time": ({"timeout": "0s"}, "timeout", "must be longer than 0s"),
    "a number for a time": ({"timeout": 5}, "timeout", "is not a duration"),
}


@for_each(("given", "field", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_by_name_and_never_quoted(given: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        ZooKeeperConnection.model_validate({"servers": "zk:2181", **given})
    problems = raised.value.errors()
    assert [problem["loc"] for problem in problems] == [(field,)]
    assert message in problems[0]["msg"]
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(problems)


def test_the_credential_follows_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    connection = ZooKeeperConnection(servers="zk:2181", user="u", password_file=file)
    assert connection.credential() == SecretStr(f"u:{SECRET}")
    file.write_text("another-password")
    assert connection.credential() == SecretStr("u:another-password")
    file.unlink()
    with pytest.raises(UserError, match=r"password_file: .* cannot be read"):
        connection.credential()


def test_a_connection_does_not_show_its_password() -> None:
    connection = ZooKeeperConnection.model_validate({"servers": "zk:2181", "user": "u", "password": SECRET})
    assert connection.credential() == SecretStr(f"u:{SECRET}")
    assert SECRET not in repr(connection)
    assert SECRET not in connection.model_dump_json()
    assert ZooKeeperConnection(servers="zk:2181").credential() is None


@pytest.mark.parametrize("path", ["ledgers", "/", "/ledgers/", "", "/a b"])
def test_paths_below_the_chroot_are_whole_paths(path: str) -> None:
    for field in ("ledgers_root", "bookies_path"):
        with pytest.raises(ValidationError):
            WatchedBookies.model_validate({field: path})
