"""What commands print: news, and nothing twice; local times; commands to paste; one line an event."""

import json
import logging
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table
from rich.text import Text

from connectors.actuation.actuator import read_data
from connectors.redaction import secret
from deploy.console import options
from deploy.console.terminal import (
    SafeConsole,
    Terminal,
    complete_commands,
    local_clock,
    note_settings_file,
    set_up_logging,
    show_local,
    show_progress,
    shown_error,
)
from policies.decisions import Alert, Decision
from policies.throttle import ThrottleFactor
from policies.wire import EventReader
from tests.cases import for_each
from tests.connectors.actuation.tail import record
from tests.policies.scenario import GB, SOFT_AND_HARD, Run, log_dirs, members, throttle

RUN = Run(throttle(SOFT_AND_HARD)).feed([members(0, 3), log_dirs(1, 3, 4 * GB), log_dirs(11, 3, GB)])
INITIAL, SLOWED, STOPPED = RUN.decisions
WARNED = next(a for a in RUN.alerts if a.alert == "volume-below-soft-limit")

RESOLVED = Run(throttle(SOFT_AND_HARD)).feed([log_dirs(1, 3, 4 * GB), log_dirs(11, 3, 50 * GB)]).alerts[-1]


class Screen:
    """A terminal that is ready, what it has shown since, and its clock."""

    def __init__(self, *history: Decision, colours: bool = False) -> None:
        self._file = StringIO()
        self.now = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
        colour: dict[str, Any] = {"force_terminal": colours, "color_system": "standard" if colours else None}
        console = Console(file=self._file, width=60, soft_wrap=True, highlight=False, **colour)
        self.terminal = Terminal(console, lambda: self.now)
        self.show(*history)
        self.before = self.text
        self.terminal.ready()
        self._ready_at = len(self.text.splitlines(keepends=True)[0])

    def show(self, *decisions: Decision) -> "Screen":
        for decision in decisions:
            self.terminal.decision(decision)
        return self

    @property
    def text(self) -> str:
        return self._file.getvalue()

    @property
    def lines(self) -> list[str]:
        """After the one that says it is ready."""
        return self.text[self._ready_at :].splitlines()


def again(decision: Decision, **fields: Any) -> Decision:
    """A later decision on the same subject."""
    return decision.model_copy(update={"sequence": decision.sequence + 1, **fields})


def test_a_step_has_the_time_of_day_as_a_decision_has() -> None:
    screen = Screen()
    screen.now += timedelta(seconds=62)
    screen.terminal.step("Kafka is ready")
    assert screen.text.splitlines() == ["08:00:00  ready", "08:01:02  Kafka is ready"]


@pytest.mark.parametrize("keyboard", ["stdin", "stderr", None])
def test_ctrl_c_is_named_only_where_someone_can_press_it(keyboard: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda stream=stream: stream == keyboard)
    told = "ready; Ctrl-C stops" if keyboard else "ready"
    assert Screen().text.splitlines() == [f"08:00:00  {told}"]


@for_each(
    ("decision", "start"),
    [
        (INITIAL, "08:00:00  throttle initial  Producers of payments may write freely: no volume has been read yet"),
        (SLOWED, "08:00:01  throttle lower  Producers of payments should be slowed to 0.75: broker 3 /data/a has"),
        (STOPPED, "08:00:11  throttle lower  Producers of payments should be stopped: broker 3 /data/a has 1.0 GB"),
        (WARNED, "08:00:01  warning: volume-below-soft-limit  broker 3 /data/a of payments has 4.0 GB free"),
        (RESOLVED, "08:00:11  resolved: volume-below-soft-limit of "),
    ],
)
def test_a_decision_is_one_line_however_long(decision: Decision, start: str) -> None:
    (line,) = Screen().show(decision).lines
    assert line.startswith(start)


@for_each(
    ("decisions", "shown"),
    [
        ([SLOWED, again(SLOWED), again(SLOWED, explanation="in other words"), WARNED, again(WARNED)], 2),
        ([SLOWED, STOPPED, SLOWED], 3),
        ([SLOWED, again(SLOWED, cluster="orders", subject="orders"), WARNED, again(WARNED, alert="fills-soon")], 4),
    ],
)
def test_news_of_each_subject_and_kind_are_shown_once(decisions: list[Decision], shown: int) -> None:
    assert len(Screen().show(*decisions).lines) == shown


def test_history_is_silent_and_what_is_in_force_from_it_is_told_once_all_is_ready() -> None:
    screen = Screen(INITIAL, SLOWED, WARNED)
    assert screen.before == ""
    assert [line.split("  ")[1] for line in screen.lines] == ["warning: volume-below-soft-limit", "throttle lower"]
    assert len(screen.show(again(SLOWED), again(WARNED), STOPPED).lines) == 3


def test_of_thousands_in_force_the_first_are_told_and_the_rest_counted() -> None:
    many = [again(SLOWED, subject=f"payments-{number}") for number in range(2_000)]
    screen = Screen(*many, WARNED)
    assert screen.lines[0].split("  ")[1] == "warning: volume-below-soft-limit"
    assert len(screen.lines) == 21
    assert screen.lines[-1].endswith("1981 more decisions are in force")


def test_an_alert_that_ended_in_history_is_not_told() -> None:
    assert Screen(WARNED, RESOLVED).lines == []


@for_each("text", ["[bold]loud[/bold]", "[/]", "[link=http://x]", "\\[red]"])
def test_what_decisions_say_is_never_taken_for_markup(text: str) -> None:
    screen = Screen().show(again(SLOWED, explanation=text), again(WARNED, alert=text))
    screen.terminal.step(text)
    assert [text in line for line in screen.lines] == [True, True, True]


def test_the_severity_shows_in_colour_on_a_real_terminal() -> None:
    assert isinstance(WARNED, Alert)
    assert "\x1b[33mwarning: volume-below-soft-limit\x1b[0m" in Screen(colours=True).show(WARNED).text
    assert "\x1b" not in Screen().show(WARNED).text


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_persons_terminal_wraps_by_words_and_further_lines_begin_below_the_first_word(width: int) -> None:
    file = StringIO()
    terminal = Terminal(Console(file=file, width=width, highlight=False))
    terminal.decision(SLOWED)
    terminal.ready()
    first, *others = [line.rstrip() for line in file.getvalue().splitlines()[1:]]
    assert first.startswith("08:00:01  throttle lower  Producers of payments")
    assert {line[:10] for line in others} == {" " * 10}
    assert max(map(len, [first, *others])) <= width
    assert " ".join(line[10:] for line in [first, *others]).endswith(SLOWED.explanation)


HOSTILE = "a\x1b]0;pwned\x07\x1b[2J\x9b\u202e\r\n09:00:00  throttle recovered"


def test_a_name_that_others_chose_neither_moves_the_cursor_nor_begins_a_line() -> None:
    screen = Screen().show(again(STOPPED, explanation=f"Producers of {HOSTILE}"))
    (line,) = screen.lines
    assert not set(line) & set("\x1b\x07\x9b\u202e\r")
    assert "\\x1b[2J" in line


def test_tables_and_errors_of_any_command_spell_it_out_too_and_keep_their_own_styles() -> None:
    file = StringIO()
    console = SafeConsole(file=file, width=200, force_terminal=True, color_system="standard")
    table = Table("name")
    table.add_row(HOSTILE)
    console.print(table, HOSTILE, style="red")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert "\x1b[" in file.getvalue()
    assert not set(shown) & set("\x1b\x07\x9b\u202e\r")


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")  # an hour ahead of UTC
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("since 2026-11-21 14:49:03 UTC by alice", "since 2026-11-21 15:49:03 CET by alice"),
        ("decided 2026-07-01T23:30:00.123Z, sequence 5", "decided 2026-07-02 01:30:00 CEST, sequence 5"),
        ("2026-99-99T00:00:00Z", "2026-99-99T00:00:00Z"),
        ("2026-11-21T14:49:03+02:00", "2026-11-21T14:49:03+02:00"),
        ("between 02:00 and 04:00", "between 02:00 and 04:00"),
    ],
)
def test_an_instant_is_shown_as_local_time_with_its_zone(text: str, shown: str) -> None:
    assert show_local(text) == shown
    assert local_clock(datetime(2026, 11, 23, 12, tzinfo=UTC)) == "13:00:00 CET"


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(("is_terminal", "shown"), [(True, "15:49:03 CET"), (False, "14:49:03 UTC")])
def test_only_a_terminal_shows_local_times_also_in_tables(is_terminal: bool, shown: str) -> None:
    file, table = StringIO(), Table("since")
    table.add_row("2026-11-21 14:49:03 UTC")
    table.add_row(Text("2026-11-21 14:49:03 UTC"))
    console = SafeConsole(file=file, force_terminal=is_terminal, width=80, highlight=False)
    console.print(table, "2026-11-21 14:49:03 UTC")
    assert file.getvalue().count(shown) == 3


@pytest.fixture
def no_file_named() -> Iterator[None]:
    note_settings_file(None)
    yield
    note_settings_file(None)


@pytest.mark.usefixtures("no_file_named")
@pytest.mark.parametrize(
    ("text", "pasted"),
    [
        ("headgate topics create", "headgate topics create -s 'my file.yaml'"),
        ("Create them with `headgate topics create`.", "Create them with `headgate topics create -s 'my file.yaml'`."),
        ("or use `headgate up`, which starts one", "or use `headgate up`, which starts one"),
        ("`headgate check FILE` lists them", "`headgate check FILE` lists them"),
        ("headgate status -s other.yaml", "headgate status -s other.yaml"),
        ("headgate is at the floor, see `kafka-configs.sh`", "headgate is at the floor, see `kafka-configs.sh`"),
        (
            "headgate act --release --forget 'user=a'\nkafka-acls.sh --add",
            "headgate act --release --forget 'user=a' -s 'my file.yaml'\nkafka-acls.sh --add",
        ),
    ],
)
def test_a_command_names_the_settings_file_of_this_call(text: str, pasted: str) -> None:
    assert complete_commands(text) == text
    note_settings_file(Path("my file.yaml"))
    assert complete_commands(text) == pasted
    assert shown_error(text) == pasted


@pytest.mark.usefixtures("no_file_named")
def test_a_file_that_the_environment_names_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SETTINGS", "a.yaml")
    note_settings_file(Path("a.yaml"))
    assert complete_commands("headgate topics create") == "headgate topics create"


# Logging: structlog's events and the standard library's records come out alike, one line each, and no secret.


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
FORGED = "c1\x1b[2J\x9b31m\u202e\r\nERROR forged"


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
    structlog.get_logger("ours").warning(f"refused {SECRET}", cluster=FORGED, errors=[FORGED], by={FORGED: SECRET})
    logging.getLogger("theirs").warning("refused %r for %s", SECRET, FORGED)
    try:
        fail_with("x", FORGED + SECRET)
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
    progress.decision(SLOWED)
    out, err = capsys.readouterr()
    assert err == ""
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events][:3] == ["it failed", "watching payments", "ready"]
    assert [events[3][name] for name in ("event", "cluster")] == [SLOWED.explanation, "payments"]
    assert events[3]["decision"] == "throttle lower"
