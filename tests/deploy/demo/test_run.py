"""The demo: its settings, readings and end; its story goes on by what is decided, carried out and measured."""

import json
import os
import re
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from deploy.console.terminal import SafeConsole, sentence_console
from deploy.demo import run
from deploy.demo.run import DemoFailedError, Director, _counting_space, free_bytes
from deploy.demo.story import (
    FIRST_SETTINGS,
    HARD_BYTES,
    LOAD_BYTES_PER_SECOND,
    SOFT_BYTES,
    TOTAL_BYTES,
    DemoSample,
    Phase,
    Screen,
)
from deploy.settings.file import load_settings
from policies.decisions import Mode
from tests.cases import for_each

MEBIBYTE = 1024 * 1024


def test_there_is_room_below_the_hard_limit_for_what_a_stop_in_steps_lets_through() -> None:
    assert HARD_BYTES > 6 * LOAD_BYTES_PER_SECOND
    assert TOTAL_BYTES > SOFT_BYTES > HARD_BYTES


@pytest.mark.parametrize(("pids", "free"), [({1: 4711}, 0), ({}, 1)])
def test_a_full_disk_or_a_dead_broker_ends_it(tmp_path: Path, pids: dict[int, int], free: int) -> None:
    watched: Any = SimpleNamespace(pids=pids)
    director = Director(watched, tmp_path, Screen(sentence_console()), Event())
    with pytest.raises(DemoFailedError, match=r"The disk was full .* or its broker has ended"):
        director._advance(DemoSample(1.0, free, 1.0, None, 0.0))


def test_the_settings_it_ends_with_are_good_and_set_nothing_yet(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(FIRST_SETTINGS)
    settings = load_settings(file)
    assert settings.policies.throttle.for_cluster("payments").mode is Mode.SHADOW
    assert settings.clusters["payments"].quotas is None


def test_of_a_folder_the_size_and_space_that_are_counted_are_told_and_all_else_as_it_was_read(tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    publish = _counting_space(tmp_path, lambda _topic, _key, value: told.append(json.loads(value)))
    disk = {"log_dir": "/tmp/demo/disk", "total_bytes": 10**12, "usable_bytes": 10**11}
    members = {"type": "members", "data": {"cluster": "demo"}}
    for event in ({"type": "log-dirs", "data": {"broker": 1, "volumes": [disk]}}, members):
        publish("topic", "demo", json.dumps(event).encode())
    counted = {**disk, "total_bytes": TOTAL_BYTES, "usable_bytes": TOTAL_BYTES}
    assert told == [{"type": "log-dirs", "data": {"broker": 1, "volumes": [counted]}}, members]


def test_a_folder_is_as_full_as_its_files_and_of_a_sparse_one_only_what_is_written_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "index").open("wb") as index:
        index.truncate(64 * MEBIBYTE)
    assert free_bytes(tmp_path) == TOTAL_BYTES
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "file").write_bytes(os.urandom(MEBIBYTE // 4))
    assert free_bytes(tmp_path) == TOTAL_BYTES - MEBIBYTE // 4
    monkeypatch.setattr(run, "TOTAL_BYTES", MEBIBYTE // 8)
    assert free_bytes(tmp_path) == 0


# The story.

LOAD = 8_000_000


def sample(factor: float = 1.0, quota: int | None = None, produced: float = LOAD) -> DemoSample:
    return DemoSample(10, 100_000_000, factor, quota, produced)


@for_each(
    ("phase", "ends", "stays"),
    [
        (Phase.FILL, [sample(0.9, 7_000_000)], [sample(), sample(0.9)]),  # the last one is decided, not carried out
        (Phase.THROTTLE, [sample(0.0, 500_000)], [sample(0.05, 500_000, produced=0)]),
        (Phase.STOP, [sample(0.0, 65_536, produced=0)], [sample(0.0, 65_536, produced=0.2 * LOAD)]),
        (
            Phase.RECOVERY,
            [sample()],
            [sample(produced=0), sample(1.0, 65_536), sample(0.9)],  # a rate, a quota and a factor are not as before
        ),
        (Phase.DONE, [], [sample()]),
    ],
)
def test_a_phase_lasts_until_its_end_is_seen(phase: Phase, ends: list[DemoSample], stays: list[DemoSample]) -> None:
    assert all(phase.ends_with(each) for each in ends)
    assert not any(phase.ends_with(each) for each in stays)
    assert phase is Phase.DONE or phase.next() is list(Phase)[list(Phase).index(phase) + 1]


# --- What the demo shows: charts as wide as the terminal, sentences wrapped by words, plain lines elsewhere

SENTENCE = "producer_byte_rate of client-id=<default> on demo was set by the quota actuator to 7.3 MB/s a broker"


def played(console: Console, looks: int = 12) -> Screen:
    screen = Screen(console)
    screen.begin(Phase.FILL)
    with screen.live or nullcontext():
        for number in range(looks):
            free = 200_000_000 - number * 1_000_000
            screen.show_sample(DemoSample(number / 2, free, 0.5, 7_300_000, 8_000_000.0))
            if number == looks // 2:
                screen.show_action(SENTENCE)
                screen.begin(Phase.THROTTLE)
    return screen


def shown(width: int, height: int = 40, *, terminal: bool = True, looks: int = 12) -> str:
    file = StringIO()
    console = SafeConsole(
        file=file, width=width, height=height, force_terminal=terminal, color_system=None, highlight=False
    )
    console.soft_wrap = not terminal
    played(console, looks)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())


@for_each("width", [40, 60, 80, 140, 300])
def test_nothing_is_wider_than_the_terminal_and_no_word_is_cut(width: int) -> None:
    lines = shown(width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(word in " ".join(lines).split() for word in ("producer_byte_rate", "client-id=<default>", "actuator"))


def test_a_bar_for_each_number_with_its_limits_fills_the_width() -> None:
    lines = shown(100).split("─" * 100)[-1].splitlines()
    names = ("free", "factor", "prod")
    free, factor, produced = (next(line for line in lines if line.startswith(name)) for name in names)
    assert "limits 140 MB, 80.0 MB" in free
    assert factor.count("━") * 2 == pytest.approx(produced.count("━"), abs=2), "half of the usual rate"
    assert "quota 7.3 MB/s" in produced


def test_without_a_terminal_there_are_lines_with_numbers_now_and_then_and_no_chart() -> None:
    text = shown(80, terminal=False, looks=150)
    assert "     0 s  200 MB free, factor 0.50, quota 7.3 MB/s, 8.0 MB/s produced\n" in text
    assert len(re.findall("MB free, factor", text)) == 15
    assert f"quota applied  {SENTENCE}\n" in text
    assert "━" not in text


def test_a_terminal_that_can_only_print_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    text = shown(80)
    assert "200 MB free, factor 0.50" in text
    assert "━" not in text
