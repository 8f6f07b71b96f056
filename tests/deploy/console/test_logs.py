"""Logging: structlog's events and the standard library's records come out alike, one line each, and no secret."""

import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from connectors.actuation.actuator import read_data
from connectors.redaction import secret
from deploy.console import options
from deploy.console.terminal import set_up_logging, show_progress
from policies.throttle import ThrottleFactor
from policies.wire import EventReader
from tests.cases import for_each
from tests.connectors.actuation.tail import record
from tests.deploy.console.test_terminal import SLOWED


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Logging is the whole process's: other tests find it as it was."""
    root, loggers = logging.getLogger(), ("kafka", "headgate.librdkafka", "connectors.kafka.tail", "py4j", "pyspark")
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in ("root", *loggers)}
    root_level, config = root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(root_level)
    for name in loggers:
        logging.getLogger(name).setLevel(levels[name])
    structlog.configure(**config)


@pytest.fixture(params=[True, False], ids=["terminal", "file"])
def on_terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr("sys.stderr.isatty", lambda: request.param)
    return bool(request.param)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What came out on standard error, each line as JSON; nothing on standard output."""
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_events_and_records_are_json_lines_with_level_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    structlog.get_logger("ours").warning("topic differs from the settings", topic="headgate.audit")
    logging.getLogger("theirs").warning("it takes %s s", 3)
    ours, theirs = lines(capsys)
    assert (ours.pop("timestamp")[-1], theirs.pop("timestamp")[-1]) == ("Z", "Z")
    assert (ours["event"], ours["topic"]) == ("topic differs from the settings", "headgate.audit")
    assert (theirs["event"], theirs["level"], ours["level"]) == ("it takes 3 s", "warning", "warning")


@for_each(("verbose", "shown"), [(False, ["info"]), (True, ["debug", "info"])])
def test_debug_shows_only_when_asked_for(capsys: pytest.CaptureFixture[str], verbose: bool, shown: list[str]) -> None:
    set_up_logging(verbose=verbose)
    logger = structlog.get_logger("ours")
    logger.debug("a")
    logger.info("b")
    assert [line["level"] for line in lines(capsys)] == shown


def test_the_kafka_client_is_quiet_even_when_verbose_as_it_logs_passwords(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(verbose=True)
    logging.getLogger("kafka.conn").error("SASL PLAIN secret")
    logging.getLogger("headgate.librdkafka").warning("a broker is down")
    assert lines(capsys) == []


def test_the_settings_name_level_and_format_of_what_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    for verbose, runs in ((False, True), (True, True), (False, False)):
        options.set_up_logging(verbose=verbose, runs=runs)
        file.write_text("log: {level: warning, format: text}\n")
        options.load_settings(file)
        file.write_text("log: {level: error, format: json}\n")
        options.load_settings(file)  # as for a reload, which has not been accepted yet
        structlog.get_logger("ours").info("nothing happened")
        structlog.get_logger("ours").warning("it failed", cluster="c1\n")
        said = "".join(capsys.readouterr())
        assert ("nothing happened" in said) == (verbose or not runs)
        *_, line = said.splitlines()
        if runs:
            assert re.fullmatch(r"20\d\d-\S+Z \[warning *\] it failed +cluster=c1\\n", line), line
        else:
            assert json.loads(line)["cluster"] == "c1\\n"


SECRET = "hunter2-never-shown"
HOSTILE = "c1\x1b[2J\x9b31m\u202e\r\nERROR forged"


def test_a_command_that_answers_says_at_its_end_alone_what_prevents_it(capsys: pytest.CaptureFixture[str]) -> None:
    for answers in (True, False):
        set_up_logging(answers=answers)
        logging.getLogger("headgate.librdkafka").error("FAIL: Connection refused, answers=%s", answers)
        structlog.get_logger("connectors.kafka.tail").warning("Kafka does not answer", answers=answers)
    said = ["FAIL: Connection refused, answers=False", "Kafka does not answer"]
    assert [line["event"] for line in lines(capsys)] == said


def test_a_command_that_answers_says_all_the_same_what_it_does_not_believe(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(answers=True)
    for _ in range(2):
        assert read_data(EventReader((ThrottleFactor,)), record("headgate.decided.of-another", b"junk")) is None
    assert ["another process writes" in line["event"] for line in lines(capsys)] == [True]


def fail_with(password: str, message: str = "no route for x") -> None:
    """Has a password among its variables, as whoever connects has."""
    raise RuntimeError({"password": password, "message": message}["message"])


@pytest.mark.usefixtures("on_terminal")
def test_an_exception_shows_no_values_of_variables(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    try:
        fail_with("only-in-" + "a-variable")
    except RuntimeError:
        structlog.get_logger("ours").exception("it failed")
        logging.getLogger("theirs").exception("it failed")
    said = capsys.readouterr().err
    assert said.count("RuntimeError: no route for x") == 2
    assert "only-in-a-variable" not in said


def test_what_a_library_quotes_of_our_secrets_is_hidden_and_what_a_terminal_obeys_is_spelled_out(
    capsys: pytest.CaptureFixture[str], on_terminal: bool
) -> None:
    set_up_logging()
    assert secret(SecretStr(SECRET), None, "here") == SECRET
    structlog.get_logger("ours").warning(f"refused {SECRET}", cluster=HOSTILE, errors=[HOSTILE], by={HOSTILE: SECRET})
    logging.getLogger("theirs").warning("refused %r for %s", SECRET, HOSTILE)
    try:
        fail_with("x", HOSTILE + SECRET)
    except RuntimeError:
        structlog.get_logger("ours").exception("it failed")
    said = capsys.readouterr().err
    assert SECRET not in said
    own_styles = re.compile(r"\x1b\[[0-9;]*m") if on_terminal else re.compile("(?!)")
    assert not set("\x1b\x9b\u202e\r") & set(own_styles.sub("", said))
    assert "c1\\x1b[2J" in said.replace("\\\\", "\\")
    assert not [line for line in said.splitlines() if line.startswith("ERROR forged")][1:], "of a traceback only"


def test_a_terminal_shows_an_event_with_its_values_and_local_times(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    set_up_logging()
    structlog.get_logger("test").warning("it failed", failed_since="2026-11-23T12:00:00.000Z", taken=["a", "b"])
    said = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)
    values = r"failed_since='2026-11-23 13:00:00 CET' taken=\['a', 'b'\]"
    assert re.fullmatch(rf"\d\d:\d\d:\d\d CES?T \[warning *\] it failed +{values}\n", said), said


def test_what_runs_writes_all_to_standard_output_where_that_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(runs=True)
    structlog.get_logger("test").warning("it failed")
    progress = show_progress()
    progress.step("watching payments")
    progress.ready()
    progress.decision(SLOWED, caught_up=True)
    out, err = capsys.readouterr()
    assert err == ""
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events][:3] == ["it failed", "watching payments", "ready"]
    assert [events[3][name] for name in ("event", "cluster")] == [SLOWED.explanation, "payments"]
    assert events[3]["decision"] == "throttle lower"
