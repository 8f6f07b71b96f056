"""`headgate replay` from outside: what stands on standard output and error, and how it ends."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy import cli
from policies.observations import Observation
from policies.throttle import ThrottleFactor
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, MB, log_dirs, members
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
