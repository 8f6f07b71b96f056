"""`headgate replay`: what stands on standard output and error, how it ends, and the courses that a timeline shows."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from deploy import cli
from deploy.whatif import AGAINST, SETTINGS, Span, Subject, courses, timeline_view
from policies.decisions import Decision
from policies.observations import Observation
from policies.throttle import ThrottleFactor
from streaming.host import PolicyHost
from streaming.replay import Recorded, Replay
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, MB, at, log_dirs, members, throttle
from tests.streaming.records import changed, event

LIMITS = "policies: {throttle: {soft: {available_bytes_below: 5GB}, hard: {available_bytes_below: 1GB}}}"
STRICTER = LIMITS.replace("5GB", "25GB")
EVENING = (members(0, 3), log_dirs(1, 3, 20 * GB), log_dirs(60, 3, 4 * GB), log_dirs(90, 3, 500 * MB))
USER_ERROR = 2


class Ended(NamedTuple):
    """What a command said and how it ended."""

    status: int
    out: str
    err: str

    @property
    def decisions(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def factors(self) -> list[tuple[str, float]]:
        """(time of day, factor) of each throttle decision."""
        told = [e for e in self.decisions if e["type"] == ThrottleFactor.event_type]
        return [(e["time"][11:19], e["data"]["factor"]) for e in told]


Headgate = Callable[..., Ended]


@pytest.fixture
def headgate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Headgate:
    """Runs the command in this process, as its script does."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["headgate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, out, err)

    return run


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "headgate.yaml"
    file.write_text(LIMITS)
    return file


def recorded(folder: Path, *records: Observation | bytes, name: str = "evening.jsonl") -> Path:
    file = folder / name
    file.write_bytes(b"".join((r if isinstance(r, bytes) else event(r)) + b"\n" for r in records))
    return file


@pytest.fixture
def evening(tmp_path: Path) -> Path:
    return recorded(tmp_path, *EVENING)


@pytest.fixture
def replayed(headgate: Headgate, evening: Path, settings: Path) -> Headgate:
    """Replays the evening with the settings, and what else a line has."""
    return partial(headgate, "replay", "-s", settings, evening)


# Output


def test_standard_output_holds_decisions_as_json_lines_alone(headgate: Headgate, evening: Path, settings: Path) -> None:
    ended = headgate("replay", "--settings", settings, evening)
    assert (ended.status, ended.err) == (0, "")
    assert {"headgate.throttle-factor.v1", "headgate.alert.v1"} == {e["type"] for e in ended.decisions}
    assert ended.factors == [("08:00:00", 1.0), ("08:00:01", 1.0), ("08:01:00", 0.75), ("08:01:30", 0.0)]


@for_each("appended", ["1e999", "NaN", "1795248000000000", "-1e18", "null", "[]"])
def test_a_record_without_a_time_is_left_out(headgate: Headgate, tmp_path: Path, settings: Path, appended: str) -> None:
    record = json.dumps({"topic": "headgate.observed.log-dirs", "partition": 0, "offset": 1, "payload": "{}", "ts": 0})
    file = recorded(tmp_path, *EVENING, record.replace('"ts": 0', f'"ts": {appended}').encode())
    ended = headgate("replay", "-s", settings, file)
    assert (ended.status, len(ended.factors)) == (0, 4)
    assert f"{file}:5: " in ended.err


LINES = [event(each) for each in EVENING]


@for_each(
    "files",
    [
        [b"\n".join(LINES[:2]), b"\n".join(LINES[2:])],
        [b"\r\n\r\n".join(LINES)],
        [b"\xef\xbb\xbf" + b"\n".join(LINES)],
    ],
    ids=["two files, one after the other", "other line ends and empty lines", "a byte order mark"],
)
def test_how_the_events_stand_in_files_does_not_matter(
    headgate: Headgate, replayed: Headgate, settings: Path, tmp_path: Path, files: list[bytes]
) -> None:
    given = [recorded(tmp_path, content, name=f"{number}.jsonl") for number, content in enumerate(files)]
    assert headgate("replay", "-s", settings, *given) == replayed()


def test_a_dash_is_standard_input(
    headgate: Headgate, replayed: Headgate, evening: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(evening.read_bytes())))
    assert headgate("replay", "-s", settings, "-") == replayed()


@for_each("text", [b"", b"\n\n  \n"])
def test_a_file_without_events_decides_nothing(headgate: Headgate, tmp_path: Path, text: bytes) -> None:
    assert headgate("replay", recorded(tmp_path, text)) == Ended(0, "", "there is no event to replay\n")


# Bad records


def test_bad_lines_are_named_on_standard_error_and_change_nothing(
    headgate: Headgate, tmp_path: Path, replayed: Headgate, settings: Path
) -> None:
    expected = replayed()
    unknown, timeless = changed(EVENING[1], type="headgate.weather.v1"), changed(EVENING[1], time=None)
    lines = (b"{'single': 'quotes'}", *EVENING[:2], unknown, b"", timeless, *EVENING[2:], b"\xff\x00")
    file = recorded(tmp_path, *lines, name="bad.jsonl")
    ended = headgate("replay", "-s", settings, file)
    assert (ended.status, ended.out) == (expected.status, expected.out)
    told = [line.removeprefix(f"{file}:").split(": ")[:2] for line in ended.err.splitlines()]
    assert told == [["1", "malformed"], ["4", "unknown_type"], ["6", "invalid"], ["9", "malformed"]]


# Time


@pytest.mark.usefixtures("in_kathmandu")
@for_each("until", ["2026-11-21T08:04:00Z", "2026-11-21T10:04:00+02:00", "2026-11-21T08:04:00", "2026-11-21 08:04"])
def test_times_are_utc_unless_they_say_otherwise(replayed: Headgate, until: str) -> None:
    assert len(replayed("--until", until).factors) == 6


# Differences


def test_differences_are_json_lines_with_both_sides(replayed: Headgate, tmp_path: Path) -> None:
    stricter = tmp_path / "stricter.yaml"
    stricter.write_text(STRICTER)
    ended = replayed("--against", stricter)
    assert (ended.status, ended.err) == (0, "")
    first = next(line for line in ended.decisions if line["type"] == ThrottleFactor.event_type)
    assert first["time"] == "2026-11-21T08:00:01.000Z"
    assert first["subject"] == first["cluster"] == CLUSTER
    assert (first["settings"]["factor"], first["against"]["factor"]) == (1.0, pytest.approx(19 / 24))
    assert "slowed to 0.79" in first["against"]["explanation"]
    last = [line for line in ended.decisions if line["type"] == ThrottleFactor.event_type][-1]
    assert last["same"]


def test_an_event_that_only_other_settings_reject_is_told(replayed: Headgate, evening: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(f"clusters: {{orders: {{kafka: {{bootstrap_servers: 'k:9092'}}}}}}\n{LIMITS}")
    ended = replayed("--against", other)
    assert ended.status == 0
    assert f"{evening}:1: " in ended.err


def test_bad_settings_to_compare_with_are_told(headgate: Headgate, evening: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("polices: {}")
    ended = headgate("replay", "--against", bad, evening)
    assert (ended.status, ended.out) == (USER_ERROR, "")
    assert ended.err == f"{bad}:1: polices: no such setting; did you mean policies?\n"


# A user's mistakes

EITHER = "give either files with recorded events, or --from to read the observed topics\n"
AT = "2026-11-21T08:00:00Z"


@for_each(
    ("arguments", "said"),
    [
        ("", EITHER),
        (f"evening.jsonl --from {AT}", EITHER),
        (".", ".: cannot be read (Is a directory)\n"),
        (
            "evening.jsonl --until tomorrow",
            "--until: 'tomorrow' is not a time: write 14:45 (local time), '10m ago', or",
        ),
        ("--unitl x", "Usage: "),
        (f"evening.jsonl --to {AT}", "--to: works only with --from; with files, use --until\n"),
        (f"--from {AT} --to {AT}", "--to: must lie after --from\n"),
        (f"--from {AT}", "kafka.bootstrap_servers is not set: name the loop's own Kafka there (or in HEADGATE_KAFKA__"),
    ],
)
def test_a_users_mistake_is_one_line_and_status_two(
    headgate: Headgate, evening: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, said: str
) -> None:
    monkeypatch.chdir(evening.parent)
    ended = headgate("replay", *arguments.split())
    assert (ended.status, ended.out) == (USER_ERROR, "")
    assert ended.err.startswith(said)


def test_it_writes_utf_8_whatever_a_terminal_would_take_and_who_reads_may_stop(tmp_path: Path, settings: Path) -> None:
    named = [each.__class__(each.id, each.at, each.reading.model_copy(update={"cluster": "💧"})) for each in EVENING]
    command = [sys.executable, "-m", "deploy.cli", "replay", "-s", str(settings), str(recorded(tmp_path, *named))]
    with subprocess.Popen(
        [*command, "--until", "2026-11-25T08:00:00Z"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONIOENCODING": "ascii"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline().decode())["data"]["cluster"] == "💧"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) in (0, 1)


# Courses: what was in force from when to when, and where two sets of settings differ, for how long.

LOOSE: dict[str, Any] = {"hard": {"available_bytes_below": GB}, "min_hold": "0s"}
STRICT: dict[str, Any] = {**LOOSE, "soft": {"available_bytes_below": 25 * GB}}
COURSE = (members(0, 3), log_dirs(1, 3, 60 * GB), log_dirs(60, 3, 500 * MB), log_dirs(120, 3, 60 * GB))
SLOW = (members(0, 3), log_dirs(1, 3, 60 * GB), log_dirs(60, 3, 13 * GB), log_dirs(120, 3, 60 * GB))


def decided(settings: dict[str, Any], *observations: Any) -> list[Decision]:
    records = [Recorded(str(n), event(o)) for n, o in enumerate(observations)]
    return list(Replay(PolicyHost({"throttle": throttle(settings)})).run(records))


def compared(*observations: Any) -> dict[Subject, list[Span]]:
    return courses({SETTINGS: decided(LOOSE, *observations), AGAINST: decided(STRICT, *observations)}, at(180))


def of(found: dict[Subject, list[Span]], part: str) -> list[Span]:
    """The only course whose subject has this part."""
    (spans,) = (spans for (_, _, about), spans in found.items() if part in about)
    return spans


def shown(found: dict[Subject, list[Span]], *, is_compared: bool = True) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(timeline_view(found, is_compared=is_compared))
    return console.export_text()


def test_a_course_says_what_was_in_force_from_when_to_when() -> None:
    found = courses({SETTINGS: decided(LOOSE, *COURSE)}, at(180))
    assert [(span.start, span.end, span.label) for span in of(found, "factor")] == [
        (at(0), at(1), "1 · initial"),
        (at(1), at(60), "1 · above_limits"),
        (at(60), at(120), "0 · hard_limit"),
        (at(120), at(180), "1 · above_limits"),
    ]
    assert [(s.start, s.end, s.label) for s in of(found, "volume-below-hard")] == [(at(60), at(120), "critical")]


def test_what_is_decided_last_is_shown_though_nothing_comes_after_it() -> None:
    found = courses({SETTINGS: decided(LOOSE, *COURSE[:3])})
    last = found["payments", "throttle", "throttle-factor of payments"][-1]
    assert (last.start, last.label) == (at(60), "0 · hard_limit")
    (alert,) = found["payments", "throttle", "volume-below-hard-limit of payments/3/data/a"]
    assert (alert.start, alert.label) == (at(60), "critical")


def test_differences_say_from_when_and_for_how_long() -> None:
    assert [(s.start, s.length, s.label) for s in of(compared(*SLOW), "factor")] == [
        (at(60), timedelta(seconds=60), "1 · above_limits instead of 0.5 · soft_limit")
    ]
    assert "differs for 60 s" in shown(compared(*SLOW))


def test_where_nothing_differs_that_is_said() -> None:
    same = compared(members(0, 3), log_dirs(1, 3, 60 * GB))
    assert shown(same) == "Both decide the same throughout.\n"
    assert shown(courses({SETTINGS: []}), is_compared=False) == "Nothing is decided.\n"


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=12))
def test_differences_follow_each_other_and_each_lasts(course: list[tuple[int, int]]) -> None:
    seconds, observations = 0, [members(0, 3)]
    for wait, free in course:
        seconds += wait
        observations.append(log_dirs(seconds, 3, free * GB))
    for spans in compared(*observations).values():
        assert all(span.start < span.end for span in spans)
        assert all(one.end <= other.start for one, other in pairwise(spans))


def test_a_timeline_shows_where_two_settings_differ(headgate: Headgate, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a.yaml", tmp_path / "b.yaml"
    ours.write_text(LIMITS)
    theirs.write_text(STRICTER)
    evening = recorded(tmp_path, *SLOW)
    ended = headgate("replay", "-s", ours, "--against", theirs, evening, "--timeline")
    assert (ended.status, ended.err) == (0, "")
    assert "differs for" in ended.out
    assert "{" not in ended.out


@pytest.mark.parametrize("against", [False, True])
def test_where_no_event_is_valid_it_says_the_line_and_why(headgate: Headgate, tmp_path: Path, against: bool) -> None:
    bad = recorded(tmp_path, b"{", b'{"x": 1}', name="bad.jsonl")
    settings = tmp_path / "a.yaml"
    settings.write_text(LIMITS)
    ended = headgate("replay", "-s", settings, bad, *(("--against", settings) if against else ()))
    assert (ended.status, ended.out) == (2, "")
    assert f"no event is valid, of 2 events; the first: {bad}:1: malformed:" in ended.err.replace("\n", " ")
