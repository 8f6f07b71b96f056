"""Mistakes that newcomers make: each ends with one sentence that names the place and the remedy, never a traceback.

Each row is one command, as a person types it. `tests/deploy/settings/test_file.py` has many more.
"""

import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from connectors.kafka import tail
from connectors.kafka.admin import reach
from deploy.cli import main
from deploy.console import terminal
from deploy.inspection import commands

WATCHED = "clusters: {payments: {kafka: {bootstrap_servers: 'k:1'}}}\n"
LIMIT = "policies: {throttle: {hard: {available_bytes_below: 1GB}}}\n"
GOOD = WATCHED + LIMIT
PASSWORD = "hunter2-and-more"
SASL = f"kafka: {{bootstrap_servers: 'k:1', sasl: {{mechanism: PLAIN, username: u, password: {PASSWORD}}}}}\n"
CHECK = "check s.yaml"
LARGE = "large: has 8.0 MB, and the limit for"


class Mistake(NamedTuple):
    """A command, and the sentence that a person needs."""

    command: str
    says: str
    settings: str = GOOD
    status: int = 2
    environment: Mapping[str, str] = {}


Headgate = Callable[[Mistake], tuple[int, str]]


def doubt(settings: str, says: str, **environment: str) -> Mistake:
    """Settings that are allowed and hardly meant: `check` warns."""
    return Mistake(CHECK, f"warning: {says}", settings, 0, environment)


MISTAKES = {
    # The settings file
    "a file that is not there": Mistake("check nowhere.yaml", "nowhere.yaml: cannot be read (No such file"),
    "a dump as the file": Mistake("check large", f"{LARGE} a settings file is 1.0 MB: name another file"),
    "a dump as a password": Mistake(
        "status -s s.yaml",
        f"{LARGE} sasl.password_file is 1.0 MB: name another file",
        "kafka: {bootstrap_servers: 'k:1', sasl: {mechanism: PLAIN, username: u, password_file: large}}",
    ),
    "a device as the file": Mistake("check /dev/zero", "/dev/zero: is larger, and the limit for a settings file is"),
    "two files": Mistake("check s.yaml -s other.yaml", "two files are named"),
    "`client:` in place of `client_id:`": Mistake(
        CHECK,
        "clusters.payments.quotas.entities.0.client: no such setting; did you mean client_id?",
        GOOD.replace("'k:1'}", "'k:1'}, quotas: {entities: [{client: x, base: 10MB}]}"),
    ),
    "a number as a name": Mistake(CHECK, "clusters.1: is no name: put it in quotes", "clusters:\n  1: {}"),
    "an empty file": doubt("", "s.yaml: nothing is set"),
    "no cluster": doubt("http: {port: 1}", "s.yaml: names no cluster, so nothing is watched"),
    "no limit": doubt(WATCHED, "s.yaml:1: clusters.payments.kafka: is watched and never throttled"),
    # Sizes, durations and numbers
    "a limit of 5": doubt(
        GOOD.replace("1GB", "5"), "s.yaml:2: policies.throttle.hard.available_bytes_below: is 5 B, which a disk passes"
    ),
    # Hosts, names and passwords
    "a list in place of a text": Mistake(CHECK, "write it as one text with", "kafka: {bootstrap_servers: ['a:1']}"),
    "a blank and a slash in a name": doubt(
        GOOD.replace("payments", "'pay ments/1'"),
        "s.yaml:1: clusters.(not a name): the name 'pay ments/1' has a blank or `/`",
    ),
    "a glob as a cluster": doubt("clusters: {'dev-*': {}}", "s.yaml:1: clusters.dev-*: is the name of one cluster"),
    "TLS as a switch": Mistake(CHECK, "kafka.tls: must contain settings by name, such as tls: {", "kafka: {tls: true}"),
    # The environment
    "HEADGATE_SETTINGS without a file": Mistake(
        "status", "nowhere.yaml: cannot be read (No such file", environment={"HEADGATE_SETTINGS": "nowhere.yaml"}
    ),
    "no settings for `doctor`": Mistake("doctor", "there is nothing to examine: pass the settings file (-s FILE, or"),
    "no settings for `status`": Mistake("status", "kafka.bootstrap_servers is not set: name the loop's own Kafka"),
    "nothing to watch for `run`": Mistake(
        "run -s s.yaml",
        "clusters: nothing is watched: name a Kafka cluster by its kafka.bootstrap_servers",
        "{kafka: {bootstrap_servers: 'k:1'}, clusters: {a: {zookeeper: {servers: 'z:1'}}}}",
    ),
    "no settings for `pause`": Mistake("pause throttle", "the settings name no cluster: pass the file of the running"),
    # Commands and options
    "an unknown cluster": Mistake("status -s s.yaml -c paymnts", "name no cluster 'paymnts'; did you mean payments?"),
    "an unknown policy": Mistake("status -s s.yaml -p throtle", "'throtle' is no policy; did you mean throttle?"),
    "a pause in words": Mistake("pause throttle --for 2hours -s s.yaml", "--for: '2hours' is not a duration: write it"),
    "a pause of nothing": Mistake("pause throttle --for 0s -s s.yaml", "0s; `headgate resume -s s.yaml` ends a pause"),
    "a time that is none": Mistake("explain x -s s.yaml --at 25:77", "--at: '25:77' is not a time: write 14:45 (local"),
    "a time to come": Mistake("explain x -s s.yaml --at 2999-01-01", "--at: 2999-01-01T00:00:00.000Z is in the future"),
    "a recording that is none": Mistake("replay -s s.yaml s.yaml", "no event is valid, of 2 events; the first: s.yaml"),
    "an unknown part": Mistake("topics acls x --principal User:u -s s.yaml", "'x' is no component: write one of coll"),
    "a file as the data folder": Mistake("up --port 0 --data-dir s.yaml", "s.yaml cannot be made (File exists); name"),
    "no Java": Mistake(
        "up --port 0 --data-dir d", "Java is needed and none was found: install Java 17", environment={"PATH": ""}
    ),
    "--forget alone": Mistake(
        "act --forget user=u -s s.yaml", "--forget needs --release", GOOD + "kafka: {bootstrap_servers: 'k:1'}"
    ),
}


@pytest.fixture
def headgate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Headgate:
    """Run a command in a folder with a blank, a quote and a letter beyond ASCII; return its status and its output."""
    folder = tmp_path / "Ein 'Übungs'-Ordner"
    folder.mkdir()
    (folder / "binary").write_bytes(bytes(range(128, 256)))
    with (folder / "large").open("wb") as sparse:
        sparse.truncate(8_000_000)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("JAVA_HOME", "")
    for room in (commands, tail):
        monkeypatch.setattr(room, "reach", partial(reach, timeout_seconds=0.5))

    def run(mistake: Mistake) -> tuple[int, str]:
        (folder / "s.yaml").write_text(mistake.settings)
        terminal.note_settings_file(None)  # as in a process of its own
        with monkeypatch.context() as patch:
            for name, text in mistake.environment.items():
                patch.setenv(name, text)
            patch.setattr(sys, "argv", ["headgate", *mistake.command.split()])
            with pytest.raises(SystemExit) as ended:
                main()
        shown = capfd.readouterr()
        return int(str(ended.value.code)), shown.out + shown.err

    return run


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_its_place_and_its_remedy(headgate: Headgate, mistake: Mistake) -> None:
    status, said = headgate(mistake)
    assert status == mistake.status, said
    assert mistake.says in " ".join(said.split())
    assert "Traceback" not in said
    assert PASSWORD not in said


@contextmanager
def listener() -> Iterator[int]:
    """A server that reads what a client sends and closes the connection, as Kafka does without a login; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # the test ends
                while True:
                    connection, _ = server.accept()
                    with suppress(OSError), connection:
                        connection.recv(4096)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("command", ["status", "alerts", "decisions", "explain x", "pause throttle payments"])
def test_a_listener_that_wants_a_login_is_named_by_each_command(headgate: Headgate, command: str) -> None:
    with listener() as port:
        kafka = f"kafka: {{bootstrap_servers: '127.0.0.1:{port}'}}\n"
        status, said = headgate(Mistake(f"{command} -s s.yaml", "", GOOD + kafka))
    assert status == 2, said
    assert "accepts connections and does not answer in plain text" in said
    assert "if this listener expects TLS or a login, set kafka.tls or kafka.sasl" in said


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid:9092"])
def test_a_kafka_that_is_away_is_named_with_what_to_check(headgate: Headgate, host: str) -> None:
    status, said = headgate(Mistake("status -s s.yaml", "", GOOD + f"kafka: {{bootstrap_servers: '{host}'}}\n"))
    assert status == 2
    assert f"Kafka at {host} did not answer" in said
    assert "check the address, and that the cluster is up" in said
