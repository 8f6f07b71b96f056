"""Courses of replays: what was in force from when to when, and where two sets of settings differ, for how long."""

import io
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from deploy.whatif import AGAINST, SETTINGS, Span, Subject, courses, timeline_view
from policies.decisions import Decision
from streaming.host import PolicyHost
from streaming.replay import Recorded, Replay
from tests.deploy.whatif.test_replaying import LIMITS, STRICTER, Headgate, headgate, recorded
from tests.policies.scenario import GB, MB, at, log_dirs, members, throttle
from tests.streaming.records import event

__all__ = ["headgate"]

LOOSE: dict[str, Any] = {"hard": {"available_bytes_below": GB}, "min_hold": "0s"}
STRICT: dict[str, Any] = {**LOOSE, "soft": {"available_bytes_below": 25 * GB}}
EVENING = (members(0, 3), log_dirs(1, 3, 60 * GB), log_dirs(60, 3, 500 * MB), log_dirs(120, 3, 60 * GB))
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
    found = courses({SETTINGS: decided(LOOSE, *EVENING)}, at(180))
    assert [(span.start, span.end, span.label) for span in of(found, "factor")] == [
        (at(0), at(1), "1 · initial"),
        (at(1), at(60), "1 · above_limits"),
        (at(60), at(120), "0 · hard_limit"),
        (at(120), at(180), "1 · above_limits"),
    ]
    assert [(s.start, s.end, s.label) for s in of(found, "volume-below-hard")] == [(at(60), at(120), "critical")]


def test_what_is_decided_last_is_shown_though_nothing_comes_after_it() -> None:
    found = courses({SETTINGS: decided(LOOSE, *EVENING[:3])})
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
