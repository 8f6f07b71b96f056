"""The doctor: all questions at once, each with a limit, and what a person or a script sees of the answers."""

import io
import json
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from rich.console import Console
from typer.testing import CliRunner

from connectors.collection import Probe, ProbeResult
from connectors.component import Component
from connectors.http.access import HttpAccess
from connectors.http.server import MetricsServer
from connectors.kafka.admin import cluster_acl, principal_of
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import GROUP, acl_command, missing_rights, rights
from connectors.policy_io import CollectorContext, ProbeContext
from connectors.pulsar.admin import role_of
from connectors.registration import ClusterSources, PolicyConnectors
from deploy.commands.root import app
from deploy.doctor import Result, Verdict, _collector_probes, ask_all, doctor_view, machine_probes, remedies
from deploy.processes.parts import Connections
from deploy.settings.application import Settings
from policies.observations import Outcome, Reading
from policies.registry import AUDIT
from policies.throttle.readings import KafkaCluster, LogDirs
from tests.cases import for_each

SECRET = "hunter2-and-more"


def probe(name: str, answer: ProbeResult | Exception, after_seconds: float = 0.0) -> Probe:
    def ask() -> ProbeResult:
        time.sleep(after_seconds)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Probe("system", name, ask)


OK = ProbeResult(Outcome.OK, "fine")


@for_each(
    ("outcome", "verdict"),
    [
        (Outcome.OK, Verdict.WORKS),
        (Outcome.UNAUTHORIZED, Verdict.NOT_ALLOWED),
        (Outcome.UNSUPPORTED, Verdict.TOO_OLD),
        (Outcome.TIMEOUT, Verdict.NO_ANSWER),
        (Outcome.UNREACHABLE, Verdict.NO_ANSWER),
        (Outcome.ERROR, Verdict.WRONG),
    ],
)
def test_each_outcome_is_a_verdict(outcome: Outcome, verdict: Verdict) -> None:
    (result,) = ask_all([probe("p", ProbeResult(outcome, "d"))])
    assert result.verdict is verdict
    assert result.is_good is (outcome is Outcome.OK)


def test_all_are_asked_at_once_and_answered_in_order() -> None:
    together = threading.Barrier(20, timeout=30)

    def ask() -> ProbeResult:
        together.wait()  # nobody goes on before all have begun
        return OK

    results = ask_all([Probe("s", str(number), ask) for number in range(20)])
    assert [(each.asked, each.is_good) for each in results] == [(str(number), True) for number in range(20)]


def test_what_hangs_is_no_answer_and_holds_nothing_else_up() -> None:
    never = threading.Event()
    hanging = Probe("s", "hangs", lambda: ProbeResult(Outcome.OK, str(never.wait(60))))
    results = ask_all([hanging, probe("good", OK)], limit_seconds=0.5)
    assert [each.verdict for each in results] == [Verdict.NO_ANSWER, Verdict.WORKS]
    assert results[0].detail == "no answer within 0.5 s"
    never.set()


def test_an_error_of_a_question_is_its_answer() -> None:
    (result,) = ask_all([probe("p", RuntimeError("two\nlines"))])
    assert (result.verdict, result.detail) == (Verdict.WRONG, "two lines")


def test_what_takes_long_is_slow_and_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.doctor.SLOW_SECONDS", 0.01)
    (result,) = ask_all([probe("p", OK, after_seconds=0.02)])
    assert (result.verdict, result.is_good) == (Verdict.SLOW, True)


def test_it_fits_eighty_columns_and_remedies_are_whole_lines() -> None:
    long = "kafka-acls.sh " + "x" * 150
    results = [
        Result("payments: Kafka", "rights on quotas", Verdict.NOT_ALLOWED, 12345, "may not [bold] " * 8, (long,)),
        Result("payments: Kafka", "a question that has a very long name indeed", Verdict.WORKS, 3, "fine", ("no",)),
    ]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(doctor_view(results))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert "[bold]" in " ".join(lines)
    assert "1 of 2 checks not good" in lines
    assert list(remedies(results)) == [("payments: Kafka, rights on quotas", (long,))]


def test_a_long_question_goes_on_below_itself_and_looks_like_no_other_system() -> None:
    result = Result("moving: ZooKeeper", "write /admin/bookie-clusters", Verdict.WORKS, 1, "may be changed")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(doctor_view([result]))
    lines = console.export_text().splitlines()
    assert [line for line in lines if line.startswith(("/", " /"))] == []
    assert any(line.startswith("  /admin/bookie-clusters") for line in lines)


# Rights


def test_what_a_part_lacks_is_what_its_topics_do_not_all_allow() -> None:
    everything = frozenset({"Create", "Read", "Write", "Describe", "DescribeConfigs"})
    topics = {f"h.{name}": everything for name in ("observed.log-dirs", "decided.throttle", AUDIT)}
    assert all(list(missing_rights(part, "h", topics, {})) == [] for part in rights())
    less = {**topics, "h.observed.log-dirs": everything - {"Write"}}
    assert [(each.name, each.operations) for each in missing_rights("collect-throttle", "h", less, {})] == [
        ("observed.log-dirs", ("Write",))
    ]
    blind = {**topics, f"h.{AUDIT}": frozenset[str]()}
    assert ("", ("Describe", "DescribeConfigs")) in [
        (each.name, each.operations) for each in missing_rights("decide", "h", blind, {})
    ]


def test_a_part_that_shares_work_needs_its_groups() -> None:
    everything = {f"h.{AUDIT}": frozenset({"Read", "Write", "Describe", "DescribeConfigs"})}
    (group,) = [grant for grant in rights()["decide"] if grant.resource == GROUP]
    assert list(missing_rights("decide", "h", everything, {group: frozenset()})) == [group]
    assert acl_command(group, "User:u", "h") == (
        "--add --allow-principal User:u --operation Read --group h.decide. --resource-pattern-type prefixed"
    )


CLIENT = {"client_id": "loop", "client_secret": SECRET}


@for_each(
    ("connection", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"sasl": {"mechanism": "PLAIN", "username": "alice", "password": SECRET}}, "User:alice"),
        ({"sasl": {"mechanism": "OAUTHBEARER", **CLIENT, "token_endpoint": "https://idp/t"}}, "User:loop"),
    ],
)
def test_a_line_names_the_user_of_the_settings_and_no_secret(connection: dict[str, object], principal: str) -> None:
    kafka = KafkaConnection.model_validate({"bootstrap_servers": "k:9092,l:9092", **connection})
    assert principal_of(kafka) == principal
    assert cluster_acl(kafka, "Describe", "AlterConfigs") == (
        f"kafka-acls.sh --bootstrap-server k:9092 --add --allow-principal {principal} "
        "--operation Describe --operation AlterConfigs --cluster"
    )


@for_each(
    ("token", "role"),
    [
        (None, None),
        ("opaque", None),
        ("a.b.c", None),
        ("e30.eyJzdWIiOiAib3BlcmF0b3IifQ.x", "operator"),
        ("e30.W10.x", None),
        ("e30.eyJzdWIiOiA1fQ.x", None),
    ],
)
def test_the_role_of_a_token_is_read_where_it_says_one(token: str | None, role: str | None) -> None:
    assert role_of(token) == role


# This machine


def on_machine(settings: Settings) -> dict[str, Result]:
    return {each.asked.partition(" ")[0]: each for each in ask_all(list(machine_probes(settings)))}


def test_a_folder_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path / "a/b", "jars_dir": tmp_path / "j", "http": {"port": 0}})
    found = on_machine(settings)
    assert found["data"].is_good
    assert found["data"].detail.endswith("the start creates it")
    assert found["checkpoint"].detail == "none yet: the query starts with the oldest records"
    assert found["jars:"].verdict is Verdict.WRONG
    assert found["jars:"].remedies[0].startswith(f"{shlex.quote(sys.executable)} -m deploy.java.jars ")
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_that_is_a_file_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = on_machine(Settings.model_validate({"data_dir": tmp_path / "file", "http": {"port": 0}}))
    assert found["data"].remedies == ("set data_dir to another folder, or change this one's owner",)


def test_a_damaged_checkpoint_names_the_command_that_helps(tmp_path: Path) -> None:
    (tmp_path / "checkpoint/offsets").mkdir(parents=True)
    (tmp_path / "checkpoint/offsets/0").write_text("v1\n{}\n{}\n")
    (tmp_path / "checkpoint/offsets/1").touch()
    found = on_machine(Settings.model_validate({"data_dir": tmp_path, "http": {"port": 0}}))
    assert found["checkpoint"].verdict is Verdict.WRONG
    assert found["checkpoint"].remedies[0].startswith("headgate checkpoint re")


@pytest.mark.parametrize("access", [None, HttpAccess(token=SecretStr("no-guest-has-it"))], ids=["open", "with a token"])
def test_a_headgate_that_runs_is_none_in_the_way(access: HttpAccess | None, tmp_path: Path) -> None:
    with MetricsServer(CollectorRegistry(), host="127.0.0.1", port=0, healthy={}, ready={}, access=access) as server:
        found = on_machine(Settings.model_validate({"data_dir": tmp_path, "http": {"port": server.port}}))
    port = next(each for asked, each in found.items() if asked == "port")
    assert (port.is_good, port.detail) == (True, "a Headgate is serving there")  # slow on a busy machine


def test_anybody_else_on_the_port_is(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
        settings = {"data_dir": tmp_path, "http": {"port": other.server_address[1]}}
        found = on_machine(Settings.model_validate(settings))
        other.shutdown()
    assert found["port"].verdict is Verdict.WRONG
    assert found["port"].remedies == ("set http.port (0 takes a free one), or http.host",)


def test_the_command_ends_with_status_one_where_something_is_not_good(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    kafka = f"{{bootstrap_servers: '127.0.0.1:1', sasl: {{mechanism: PLAIN, username: u, password: {SECRET}}}}}"
    file.write_text(
        f"data_dir: {tmp_path}\nhttp: {{port: 0}}\n"
        f"clusters: {{c: {{kafka: {kafka}, zookeeper: {{servers: '127.0.0.1:1', timeout: 1s}}, bookies: {{}}}}}}\n"
    )
    result = CliRunner().invoke(app, ["doctor", "-s", str(file), "--json"])
    assert result.exit_code == 1, result.output
    found = {(each["system"], each["asked"]): each for each in json.loads(result.stdout)}
    assert found["c", "throttle collector"]["verdict"] == "no answer"
    assert found["c", "bookie collector"]["verdict"] == "no answer"
    assert found["this machine", "Java"]["good"] is True
    assert SECRET not in result.output


# Collectors run once: what each says of a whole round of readings, however they come.

TIMEOUT, UNAUTHORIZED = Outcome.TIMEOUT, Outcome.UNAUTHORIZED


def log_dirs(broker: int, outcome: Outcome) -> LogDirs:
    if outcome is Outcome.OK:
        return LogDirs(cluster="c", broker=broker, outcome=outcome, volumes=())
    return LogDirs(cluster="c", broker=broker, outcome=outcome, detail="why")


Run = Callable[[CollectorContext, threading.Event], None]


def polling(readings: list[Reading], after_seconds: float = 0.0, every_seconds: float = 60.0) -> Run:
    """A collector whose every poll publishes these, the last of them after a while."""

    def run(context: CollectorContext, stop: threading.Event) -> None:
        sink = context.sink(LogDirs, "test")

        def poll() -> None:
            for reading in readings[:-1]:
                sink(reading)
            stop.wait(after_seconds)
            sink(readings[-1])

        while not stop.is_set():
            context.metrics.run_poll(context.name, poll)
            stop.wait(every_seconds)

    return run


def asked(*runs: Run) -> list[ProbeResult]:
    def collectors(context: CollectorContext) -> Iterator[Component]:
        for run in runs:
            yield Component(f"collector of {context.name}", partial(run, context))

    def remedies(_cluster: ClusterSources, reading: Reading) -> Iterator[str]:
        if reading.outcome is UNAUTHORIZED:
            yield "let it in"

    registered = PolicyConnectors(collectors=collectors, remedies=remedies)
    with Connections(Settings()) as connections:
        context = ProbeContext("c", ClusterSources(), None, connections)
        return [probe.ask() for probe in _collector_probes("throttle", registered, context)]


def test_the_reading_that_comes_last_counts_too() -> None:
    first = KafkaCluster(cluster="c", outcome=Outcome.OK, brokers=())
    (answer,) = asked(polling([first, log_dirs(1, Outcome.OK), log_dirs(2, UNAUTHORIZED)], after_seconds=1.0))
    assert (answer.outcome, answer.detail, answer.remedies) == (UNAUTHORIZED, "c/2: why", ("let it in",))


def test_of_several_failures_what_says_most_is_told_and_the_others_are_counted() -> None:
    (answer,) = asked(polling([log_dirs(1, TIMEOUT), log_dirs(2, UNAUTHORIZED), log_dirs(3, UNAUTHORIZED)]))
    assert (answer.outcome, answer.detail) == (UNAUTHORIZED, "c/2: why (and 2 more)")
    assert answer.remedies == (
        "let it in",
        "clusters.c: check its addresses, that the servers run, and that this machine can reach them",
    )


def test_what_was_read_is_told_by_kind() -> None:
    found = KafkaCluster(cluster="c", outcome=Outcome.OK, brokers=())
    (answer,) = asked(polling([found, log_dirs(1, Outcome.OK), log_dirs(2, Outcome.OK)]))
    assert (answer.outcome, answer.detail) == (Outcome.OK, "kafka-cluster, log-dirs 2")


def test_a_collector_that_never_rests_is_heard_all_the_same() -> None:
    (answer,) = asked(polling([log_dirs(1, Outcome.OK)], every_seconds=0.01))
    assert (answer.outcome, answer.detail) == (Outcome.OK, "log-dirs")


def test_each_part_answers_for_itself() -> None:
    answers = asked(polling([log_dirs(1, Outcome.OK)]), polling([log_dirs(2, TIMEOUT)]))
    assert [answer.outcome for answer in answers] == [Outcome.OK, TIMEOUT]


def _wait(_context: CollectorContext, stop: threading.Event) -> None:
    stop.wait(60)


def test_a_collector_that_reads_nothing_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.doctor.LIMIT_SECONDS", 4.2)
    (answer,) = asked(_wait)
    assert (answer.outcome, answer.detail) == (TIMEOUT, "it has published no reading in time")
