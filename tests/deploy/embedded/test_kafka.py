"""What the embedded Kafka writes, remembers and refuses before it starts anything; real brokers are in system tests."""

import json
import re
import socket
import threading
from pathlib import Path

import pytest

from deploy.embedded import kafka as embedded
from deploy.embedded.kafka import EmbeddedKafka
from policies.units import UserError


class NoBrokerError(Exception):
    """Instead of starting a process."""


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*asked: object) -> None:
        raise NoBrokerError

    monkeypatch.setattr(embedded, "JvmProcess", refuse)


def prepared(kafka: EmbeddedKafka) -> EmbeddedKafka:
    """All is written and chosen, and the first process is about to start."""
    with pytest.raises(NoBrokerError):
        kafka.start()
    return kafka


def properties(folder: Path, broker: int = 1) -> dict[str, str]:
    lines = (folder / f"broker-{broker}" / "server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def ports(kafka: EmbeddedKafka) -> list[int]:
    return [int(server.rpartition(":")[2]) for server in kafka.bootstrap_servers.split(",")]


def test_of_many_brokers_the_first_is_the_controller_and_all_know_it(tmp_path: Path) -> None:
    kafka = prepared(EmbeddedKafka(tmp_path, (), brokers=3))
    assert [properties(tmp_path, n)["process.roles"] for n in (1, 2, 3)] == ["broker,controller", "broker", "broker"]
    (quorum,) = {properties(tmp_path, n)["controller.quorum.voters"] for n in (1, 2, 3)}
    voter, _, address = quorum.partition("@")
    assert (voter, address in properties(tmp_path)["listeners"]) == ("1", True)
    assert "CONTROLLER" not in properties(tmp_path, 2)["listeners"]
    assert len({0, *ports(kafka), int(quorum.rpartition(":")[2])}) == 5, "each has a port of its own"


@pytest.mark.parametrize(("brokers", "replicas"), [(1, "1"), (2, "2"), (3, "3"), (5, "3")])
def test_a_topic_has_as_many_replicas_as_brokers_up_to_three(tmp_path: Path, brokers: int, replicas: str) -> None:
    prepared(EmbeddedKafka(tmp_path, (), brokers=brokers))
    assert properties(tmp_path)["default.replication.factor"] == replicas


def test_it_listens_on_loopback_alone(tmp_path: Path) -> None:
    prepared(EmbeddedKafka(tmp_path, (), brokers=2))
    for broker in (1, 2):
        for name in ("listeners", "advertised.listeners"):
            addresses = properties(tmp_path, broker)[name].split(",")
            assert {each.rsplit("/", 1)[1].split(":")[0] for each in addresses} == {"127.0.0.1"}


def test_the_metadata_lie_apart_from_log_dirs_which_may_fill_up(tmp_path: Path) -> None:
    disks = [tmp_path / "disk-1", tmp_path / "disk-2"]
    prepared(EmbeddedKafka(tmp_path / "data", (), log_dirs={1: disks}))
    written = properties(tmp_path / "data")
    assert written["log.dirs"] == ",".join(map(str, disks))
    assert Path(written["metadata.log.dir"]).is_relative_to(tmp_path / "data")


def test_each_folder_has_the_mark_of_its_cluster_and_a_mark_that_is_there_stays(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    prepared(EmbeddedKafka(tmp_path / "data", (), log_dirs={1: [disk]}))
    marks = [(folder / "meta.properties") for folder in (tmp_path / "data" / "broker-1" / "metadata", disk)]
    cluster_id = json.loads((tmp_path / "data" / "cluster.json").read_text())["cluster_id"]
    assert {mark.read_text() for mark in marks} == {f"version=1\ncluster.id={cluster_id}\nnode.id=1\n"}
    marks[0].write_text("as the broker has written it")
    prepared(EmbeddedKafka(tmp_path / "data", (), log_dirs={1: [disk]}))
    assert marks[0].read_text() == "as the broker has written it"


def test_given_properties_win(tmp_path: Path) -> None:
    prepared(EmbeddedKafka(tmp_path, (), server_properties={"num.io.threads": 7, "log.dirs": f"{tmp_path}/elsewhere"}))
    assert (properties(tmp_path)["num.io.threads"], properties(tmp_path)["log.dirs"]) == ("7", f"{tmp_path}/elsewhere")


def test_ports_and_identity_are_kept_as_long_as_the_ports_are_free(tmp_path: Path) -> None:
    first = ports(prepared(EmbeddedKafka(tmp_path, (), brokers=2)))
    identity = json.loads((tmp_path / "cluster.json").read_text())
    assert ports(prepared(EmbeddedKafka(tmp_path, (), brokers=2))) == first
    assert json.loads((tmp_path / "cluster.json").read_text()) == identity
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", first[0]))
        other.listen()
        again = ports(prepared(EmbeddedKafka(tmp_path, (), brokers=2)))
    assert (again[0] != first[0], again[1]) == (True, first[1])
    assert json.loads((tmp_path / "cluster.json").read_text())["cluster_id"] == identity["cluster_id"]


def test_a_wanted_port_is_taken_and_one_in_use_refused_by_number(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        wanted = int(other.getsockname()[1])
        other.listen()
        with pytest.raises(UserError, match=f"port {wanted} of 127.0.0.1 is in use"):
            EmbeddedKafka(tmp_path, (), ports=[wanted]).start()
    assert ports(prepared(EmbeddedKafka(tmp_path, (), brokers=2, ports=[wanted])))[0] == wanted


def test_one_at_a_time_uses_a_folder_and_a_failed_start_gives_it_back(tmp_path: Path) -> None:
    holder = EmbeddedKafka(tmp_path, ())
    holder.stop()
    assert holder.pids == {}, "to stop what never ran is harmless"
    holder.reserve()
    with pytest.raises(UserError, match="is in use by process"):
        EmbeddedKafka(tmp_path, ()).start()
    holder.stop()
    prepared(EmbeddedKafka(tmp_path, ()))
    prepared(EmbeddedKafka(tmp_path, ()))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/data/lock: cannot be made .*: choose another folder"):
        EmbeddedKafka(tmp_path / "file" / "data", ()).start()


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (["INFO fine", "ERROR it fell", "Caused by: no disk", "Caused by: disk full", "INFO bye"], "disk full"),
        (["INFO fine", "java.io.IOException: no disk", "\tat kafka.log.Exception: x"], "java.io.IOException: no disk"),
        (["[x] ERROR first", "[x] ERROR last", "INFO bye"], "[x] ERROR last"),
        (["Error: could not find java", "bye"], "Error: could not find java"),
        (["hello", " bye "], "bye"),
        ([], "it said nothing"),
    ],
)
def test_the_innermost_cause_is_why_a_process_ended(log: list[str], reason: str) -> None:
    assert embedded._reason(log) == reason


def test_a_path_is_written_as_java_reads_it(tmp_path: Path) -> None:
    path = "/My Data /Zo\u00eb's /a\\b /\U0001f4a7"
    written = embedded.write_properties(tmp_path / "p", {"path": path}, "# first\n").read_text()
    assert written == "# first\npath=/My Data /Zo\\u00eb's /a\\\\b /\\ud83d\\udca7\n"


class Ended:
    """A broker's process that is there until somebody has looked some times."""

    pid, exit_code = 4711, 1

    def __init__(self, looks: int = 1) -> None:
        self.looked, self._looks = 0, looks

    @property
    def is_alive(self) -> bool:
        self.looked += 1
        return self.looked <= self._looks

    def console_tail(self) -> list[str]:
        return ["java.io.IOException: No space left on device"]


def test_a_broker_that_ends_by_itself_is_told_once_with_the_reason_and_the_controller_ends_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_WATCH_SECONDS", 0)
    kafka = prepared(EmbeddedKafka(tmp_path, (), brokers=2))
    kafka._processes[1] = Ended(looks=3)  # type: ignore[assignment]
    kafka._processes[2] = Ended()  # type: ignore[assignment]
    told: list[str] = []
    reason = r"ended \(exit code 1\): java.io.IOException: No space left on device \(log: "
    with pytest.raises(UserError, match=f"Kafka broker 1 {reason}"):
        kafka.watch(threading.Event(), told.append)
    assert len(told) == 1
    assert re.match(f"Kafka broker 2 {reason}", told[0])


def test_a_broker_that_was_killed_is_told_as_such_and_not_by_its_last_warning(tmp_path: Path) -> None:
    killed = Ended()
    killed.exit_code, killed.looked = -9, 1
    kafka = prepared(EmbeddedKafka(tmp_path, ()))
    kafka._processes[1] = killed  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"^Kafka broker 1 was ended by SIGKILL \(log: "):
        kafka._check_alive((1,))
