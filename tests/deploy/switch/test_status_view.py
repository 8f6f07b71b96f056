"""What a person sees of a switch: where it stands, how far it is, and what is in its way."""

from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from deploy.switch.status import bars, present_stage, stage_line, status_view
from policies.switching.decisions import BrokerCounts, SwitchHold
from policies.switching.state import LedgerStage, SwitchStage
from tests.cases import for_each
from tests.deploy.switch.decisions import NOW, record

WAY = "registered → prechecked → triggered → live_dual_read → build → promote → hold → cleanup → done"
WINDOWS: dict[str, Any] = {"rollback_until": NOW + timedelta(hours=20), "cleanup_from": NOW + timedelta(days=14)}


def hold(name: str, alert: str, why: str, since: datetime | None = None, due: datetime | None = None) -> SwitchHold:
    return SwitchHold(name=name, alert=alert, why=why, since=since, alert_from=due, ends_with="`resume`")


HOUR = timedelta(hours=1)
LATER = hold("pause", "switch-waiting", "waits", NOW - HOUR, NOW + HOUR)


def view(width: int = 120, **fields: Any) -> str:
    out = StringIO()
    Console(file=out, width=width).print(status_view(record(**fields), NOW), highlight=False)
    return out.getvalue()


@for_each("stage", [SwitchStage(s) for s in WAY.split(" → ")])
def test_each_stage_of_the_way_is_marked_where_it_stands(stage: SwitchStage) -> None:
    assert stage_line(record(verdict=stage)).plain == WAY.replace(stage.value, f"[{stage.value}]")


@pytest.mark.parametrize(
    ("stage", "line"),
    [
        (SwitchStage.REJECTED, "registered → prechecked → triggered → [rejected]"),
        (SwitchStage.ROLLBACK, "registered → prechecked → triggered → live_dual_read → [rollback] → rolled_back"),
        (SwitchStage.ROLLED_BACK, "registered → prechecked → triggered → live_dual_read → rollback → [rolled_back]"),
        (SwitchStage.DONE_WITH_FAILURES, WAY.removesuffix("done") + "[done_with_failures]"),
    ],
)
def test_other_ends_have_ways_of_their_own(stage: SwitchStage, line: str) -> None:
    assert stage_line(record(verdict=stage)).plain == line


def test_what_is_passed_looks_otherwise_than_what_is_to_come() -> None:
    line = stage_line(record(verdict=SwitchStage.BUILD))
    styles = {line.plain[span.start : span.end]: span.style for span in line.spans}
    assert [styles[stage] for stage in ("triggered", "promote", "done")] == ["green", "dim", "dim"]
    halted = stage_line(record(verdict=SwitchStage.BUILD, halted="x"))
    assert "red" in str(next(span.style for span in halted.spans if "[" in halted.plain[span.start : span.end]))


def test_the_line_of_every_stage_marks_exactly_that_stage() -> None:
    for stage in set(SwitchStage) - {SwitchStage.NONE}:
        assert stage_line(record(verdict=stage)).plain.count("[") == 1
        assert f"[{stage.value}]" in stage_line(record(verdict=stage)).plain


@pytest.mark.parametrize(
    ("known", "stage"),
    [
        ({"registry": {}, "prechecks": {}}, SwitchStage.NONE),
        ({"prechecks": {}}, SwitchStage.REGISTERED),
        ({}, SwitchStage.PRECHECKED),
    ],
    ids=["nothing", "registered", "prechecked"],
)
def test_before_a_switch_the_registry_tells_the_stage(known: dict[str, Any], stage: SwitchStage) -> None:
    before = record(verdict=SwitchStage.NONE, source=None, target=None, attempt=0, **known)
    assert present_stage(before) is stage
    assert stage_line(before).plain.count("[") == (stage is not SwitchStage.NONE)


COUNTS = {
    LedgerStage.PENDING: 1, LedgerStage.COPYING: 2, LedgerStage.BUILT: 4, LedgerStage.PROMOTING: 8,
    LedgerStage.PROMOTED: 16, LedgerStage.PROMOTED_VIA_ROLLOVER: 32, LedgerStage.PROMOTE_DEFERRED: 64,
    LedgerStage.BUILD_FAILED: 128, LedgerStage.FOREIGN_CONFLICT: 256, LedgerStage.DELETE_INTENT: 512,
    LedgerStage.CLEANED: 1024, LedgerStage.REVERTED: 2048,
}  # fmt: skip
"""Powers of two, so that a sum says what was counted."""
ALL = sum(COUNTS.values())
BROKERS = ("brokers acked", 1, 3)
COPIED = ("copied", 4 + 8 + 16 + 32 + 64 + 512 + 1024, ALL)
PROMOTED = ("promoted", 16 + 32 + 512 + 1024, ALL)
CLEANED = ("cleaned up", 1024, 16 + 512 + 1024)


@for_each(
    ("stage", "expected"),
    [
        (SwitchStage.BUILD, [BROKERS, COPIED]),
        (SwitchStage.PROMOTE, [BROKERS, COPIED, PROMOTED]),
        (SwitchStage.HOLD, [BROKERS, COPIED, PROMOTED]),
        (SwitchStage.CLEANUP, [BROKERS, COPIED, PROMOTED, CLEANED]),
        (SwitchStage.DONE, [BROKERS, COPIED, PROMOTED, CLEANED]),
        (SwitchStage.ROLLBACK, [BROKERS, ("rolled back", 2048, ALL)]),
    ],
)
def test_each_stage_has_a_bar_once_it_is_reached(stage: SwitchStage, expected: list[tuple[str, int, int]]) -> None:
    assert bars(record(verdict=stage, ledgers=COUNTS)) == expected


def test_without_ledgers_or_switch_there_is_nothing_to_count() -> None:
    assert bars(record()) == [BROKERS]
    assert bars(record(verdict=SwitchStage.NONE, source=None, target=None)) == []


@pytest.mark.parametrize("width", [80, 120])
def test_the_view_fits_its_width(width: int) -> None:
    text = view(width, ledgers=COUNTS, verdict=SwitchStage.HOLD, halted="because " * 30, **WINDOWS)
    assert max(map(len, text.splitlines())) <= width
    assert "1640 of 4095" not in text, "sums of the wrong stages"
    assert "1584 of 4095" in text
    assert "brokers acked" in text


def test_what_stays_behind_and_what_is_in_the_way_is_named() -> None:
    text = view(
        ledgers={LedgerStage.FOREIGN_CONFLICT: 2, LedgerStage.BUILD_FAILED: 1, LedgerStage.BUILT: 5},
        holds=(hold("halted", "switch-halted", "halts: INV-1 of 5"), LATER), brokers=BrokerCounts(live=None, acked=2),
    )  # fmt: skip
    assert "stay behind in old: 2 foreign_conflict, 1 build_failed" in text
    assert "switch-halted: halts: INV-1 of 5; to end it: `resume`" in text
    assert "switch-waiting from 2026-11-21T18:00:00Z: waits (since 2026-11-21T16:00:00Z); to end it: `resume`" in text
    assert "the number of live brokers is unknown" in text
    calm = view()
    assert not [word for word in ("stay behind", "to end it", "not known") if word in calm]


@for_each(
    ("stage", "later", "rollback", "cleanup"),
    [
        (SwitchStage.BUILD, "0h", "possible for 20.0 h more (until 2026-11-22T13:00:00Z)", None),
        (
            SwitchStage.HOLD,
            "0h",
            "possible for 20.0 h more (until 2026-11-22T13:00:00Z)",
            "possible in 14 days (from 2026-",
        ),
        (SwitchStage.HOLD, "20h", "no longer possible (since 2026-11-22T13:00:00Z)", "possible in 13 days"),
        (SwitchStage.HOLD, "336h", "no longer possible", "possible (since 2026-12-05T17:00:00Z)"),
        (SwitchStage.CLEANUP, "336h", None, None),
        (SwitchStage.DONE, "0h", None, None),
    ],
)
def test_the_windows_say_how_long_they_are_open(
    stage: SwitchStage, later: str, rollback: str | None, cleanup: str | None
) -> None:
    passed = timedelta(hours=int(later.removesuffix("h")))
    text = view(verdict=stage, **{name: at - passed for name, at in WINDOWS.items()})
    shifted = {"rollback": rollback, "clean-up": cleanup}
    for name, said in shifted.items():
        assert (f"{name}: " in text) is (said is not None)
        assert said is None or f"{name}: {said.split(' (')[0]}" in text


def test_a_stalled_copy_is_shown_with_the_time_since_when_nothing_was_copied() -> None:
    half = {LedgerStage.BUILT: 1, LedgerStage.COPYING: 1}
    text = view(ledgers=half, decided_at=NOW - timedelta(minutes=8))
    assert "50.0 %, nothing copied for 8 min (since 2026-11-21T16:52:00Z)" in text
    assert "a second" not in text


def test_the_registry_says_what_each_cluster_is_to_the_brokers() -> None:
    rows = [line for line in view().splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row.strip("│").split("│")] for row in rows] == [
        ["old", "active", "source", ""],
        ["new", "standby", "target, written to", "d" * 12],
    ]
    assert "begin with `headgate switch register`" in view(registry={}, verdict=SwitchStage.NONE)


def test_it_says_how_old_it_is() -> None:
    assert view().rstrip().endswith("published 12 s ago")
