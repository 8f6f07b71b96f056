"""What a person sees of a switch: where it stands, how far and how fast it is, and what is in its way."""

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from io import StringIO
from typing import Any, Self

import pytest
from rich.console import Console

from deploy.settings.application import Settings
from deploy.switch import status
from deploy.switch.status import (
    bars,
    describe_pace,
    has_failed,
    is_to_clean,
    ledger_lines,
    present_stage,
    select_ledgers,
    show_ledgers,
    show_status,
    stage_line,
    status_view,
)
from policies.decisions import Decision
from policies.switching.decisions import (
    BrokerCounts,
    SwitchDecision,
    SwitchHold,
    SwitchReason,
    SwitchRecord,
    SwitchVerdict,
)
from policies.switching.state import LedgerStage, SwitchStage
from tests.cases import for_each
from tests.connectors.switching.orders import order
from tests.connectors.switching.orders import record as order_record
from tests.deploy.switch.decisions import NOW, record

WAY = "registered → prechecked → triggered → live_dual_read → build → promote → hold → cleanup → done"
LIVE = WAY.partition(" → build")[0]
WINDOWS: dict[str, Any] = {"rollback_until": NOW + timedelta(hours=20), "cleanup_from": NOW + timedelta(days=14)}


def hold(name: str, alert: str, why: str, since: datetime | None = None, due: datetime | None = None) -> SwitchHold:
    return SwitchHold(name=name, alert=alert, why=why, since=since, alert_from=due, ends_with="`resume`")


HOUR = timedelta(hours=1)
LATER = hold("pause", "switch-waiting", "waits", NOW - HOUR, NOW + HOUR)


def view(width: int = 120, **fields: Any) -> str:
    out = StringIO()
    Console(file=out, width=width).print(status_view(record(**fields), NOW), highlight=False)
    return out.getvalue()


@for_each(
    ("stage", "line"),
    [
        *((SwitchStage(stage), WAY.replace(stage, f"[{stage}]")) for stage in WAY.split(" → ")),
        (SwitchStage.REJECTED, "registered → prechecked → triggered → [rejected]"),
        (SwitchStage.ABORTED, f"{LIVE} → [aborted]"),
        (SwitchStage.ROLLBACK, f"{LIVE} → [rollback] → rolled_back"),
        (SwitchStage.ROLLED_BACK, f"{LIVE} → rollback → [rolled_back]"),
        (SwitchStage.ROLLED_BACK_WITH_FAILURES, f"{LIVE} → rollback → [rolled_back_with_failures]"),
        (SwitchStage.DONE_WITH_FAILURES, WAY.removesuffix("done") + "[done_with_failures]"),
    ],
)
def test_each_stage_is_marked_on_its_way(stage: SwitchStage, line: str) -> None:
    assert stage_line(record(verdict=stage)).plain == line


def test_what_is_passed_looks_otherwise_than_what_is_to_come() -> None:
    line = stage_line(record(verdict=SwitchStage.BUILD))
    styles = {line.plain[span.start : span.end]: span.style for span in line.spans}
    assert [styles[stage] for stage in ("triggered", "promote", "done")] == ["green", "dim", "dim"]
    halted = stage_line(record(verdict=SwitchStage.BUILD, halted="x"))
    assert "red" in str(next(span.style for span in halted.spans if "[" in halted.plain[span.start : span.end]))


@for_each(
    ("known", "stage"),
    [
        ({"registry": {}, "prechecks": {}}, SwitchStage.NONE),
        ({"prechecks": {}}, SwitchStage.REGISTERED),
        ({}, SwitchStage.PRECHECKED),
    ],
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
BROKERS = ("brokers acked", 1, 3)
COPIED = ("copied", 4 + 8 + 16 + 32 + 64 + 512 + 1024, 1 + 2 + 4 + 8 + 16 + 32 + 64 + 512 + 1024)
PROMOTED = ("promoted", 16 + 32 + 512 + 1024, 1 + 2 + 4 + 8 + 16 + 32 + 512 + 1024)
CLEANED = ("cleaned up", 1024, 16 + 512 + 1024)


@for_each(
    ("stage", "expected"),
    [
        (SwitchStage.BUILD, [BROKERS, COPIED]),
        (SwitchStage.PROMOTE, [BROKERS, COPIED, PROMOTED]),
        (SwitchStage.HOLD, [BROKERS, COPIED, PROMOTED]),
        (SwitchStage.CLEANUP, [BROKERS, COPIED, PROMOTED, CLEANED]),
        (SwitchStage.DONE, [BROKERS, COPIED, PROMOTED, CLEANED]),
        (SwitchStage.DONE_WITH_FAILURES, [BROKERS, COPIED, PROMOTED, CLEANED]),
        (SwitchStage.ROLLBACK, [BROKERS, ("rolled back", 2048, 8 + 16 + 2048)]),
        (SwitchStage.ROLLED_BACK, [BROKERS, ("rolled back", 2048, 8 + 16 + 2048)]),
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
    assert "1584 of 1599" in text
    assert "brokers acked" in text


def test_what_stays_behind_and_what_is_in_the_way_is_named() -> None:
    text = view(
        ledgers={LedgerStage.FOREIGN_CONFLICT: 2, LedgerStage.BUILD_FAILED: 1, LedgerStage.BUILT: 5},
        holds=(hold("halted", "switch-halted", "halts: INV-1 of 5"), LATER, hold("copies", "", "copies run")),
        brokers=BrokerCounts(live=None, acked=2),
    )  # fmt: skip
    assert "stay behind in old: 2 foreign_conflict, 1 build_failed" in text
    assert "switch-halted: halts: INV-1 of 5; to end it: `resume`" in text
    assert "copies: copies run; to end it" in text, "a hold without an alert has a name"
    assert "switch-waiting from 2026-11-21T18:00:00Z: waits (since 2026-11-21T16:00:00Z); to end it: `resume`" in text
    assert "the number of live brokers is unknown" in text
    assert "PRECHECK BYPASSED" in view(bypassed=True)
    calm = view()
    assert not [word for word in ("stay behind", "to end it", "not known", "BYPASSED") if word in calm]


@for_each(
    ("stage", "later", "rollback", "cleanup"),
    [
        (SwitchStage.BUILD, "0h", "possible for 20.0 h more (until 2026-11-22T13:00:00Z)", None),
        (SwitchStage.HOLD, "0h", "possible for 20.0 h more (until 2026-", "possible in 14 days (from 2026-"),
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


def test_the_registry_says_what_each_cluster_is_to_the_brokers() -> None:
    rows = [line for line in view().splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row.strip("│").split("│")] for row in rows] == [
        ["old", "active", "source", ""],
        ["new", "standby", "target, written to", "d" * 12],
    ]
    assert "begin with `headgate switch register`" in view(registry={}, verdict=SwitchStage.NONE)


def test_it_says_how_old_it_is() -> None:
    assert view().rstrip().endswith("published 12 s ago")


# --- how fast it is


L, S = LedgerStage, SwitchStage
HALF = {L.BUILT: 40, L.BUILD_FAILED: 10, L.COPYING: 16, L.PENDING: 34}


def after(seconds: float, **fields: Any) -> SwitchRecord:
    return record(sequence=100 + int(seconds), decided_at=NOW + timedelta(seconds=seconds), **fields)


def pace_of(latest: SwitchRecord, *earlier: SwitchRecord, at_seconds: float = 0.0) -> str | None:
    line = describe_pace(latest, earlier, NOW + timedelta(seconds=at_seconds))
    return None if line is None else line.plain


@pytest.mark.parametrize("stage", [S.TRIGGERED, S.HOLD, S.DONE, S.LIVE_DUAL_READ])
def test_a_stage_that_works_on_no_ledgers_has_no_pace(stage: SwitchStage) -> None:
    assert pace_of(after(10, verdict=stage, ledgers=HALF)) is None


def test_the_rate_is_that_of_the_last_minute() -> None:
    slow = [after(n, ledgers={L.BUILT: n, L.PENDING: 100 - n}) for n in range(0, 41, 10)]
    now = after(50, ledgers={L.BUILT: 60, L.PENDING: 40}, copy_bytes_per_second=2**20)
    assert pace_of(now, *slow, at_seconds=50) == "1.2 ledgers a second, 33 s left, at most 1.0 MB a second"
    later = pace_of(now, *slow, at_seconds=95)
    assert str(later).startswith("2.0 ledgers a second, 20 s left"), "only the record at 40 s is of the last minute"


def test_without_earlier_records_of_this_stage_and_attempt_it_is_that_since_the_stage_began() -> None:
    others = [after(1, verdict=S.PROMOTE, ledgers=HALF), after(2, attempt=2, ledgers=HALF)]
    for earlier in ((), others):
        assert pace_of(after(25, ledgers=HALF, stage_since=NOW), *earlier) == "1.6 ledgers a second, 31 s left"


@for_each(("seconds", "is_stalled"), [(30.0, False), (66.0, True), (600.0, True)])
def test_a_stalled_stage_has_the_time_of_its_last_progress(seconds: float, is_stalled: bool) -> None:
    """Records are published for other changes, too, and none at all while nothing changes."""
    before, reached = after(0, ledgers={L.PENDING: 100}), after(5, ledgers=HALF)
    pace = str(pace_of(after(20, ledgers=HALF, blocked="x"), before, reached, at_seconds=seconds))
    assert ("(since 2026-11-21T17:00:05Z)" in pace) is is_stalled
    assert (" left" in pace) is not is_stalled


def test_a_stage_that_never_began_is_stalled_since_it_was_reached() -> None:
    pace = pace_of(after(25, ledgers={L.PENDING: 3}, stage_since=NOW), at_seconds=90)
    assert pace == "nothing copied for 90 s (since 2026-11-21T17:00:00Z): the executor's log names what fails"


def test_what_stands_still_has_no_end() -> None:
    assert pace_of(after(25, ledgers=HALF), after(5, ledgers=HALF)) == "0.0 ledgers a second"


# --- `headgate switch status`: the record as it was last published, once, or each new one until the switch is over


class Loop:
    """What the loop publishes: some records at first, and one more at each poll as long as there are any."""

    def __init__(self, *records: SwitchRecord, known: int = 1) -> None:
        self._known, self._ahead = list(records[:known]), list(records[known:])
        self.polls = 0

    def __call__(self, *asked: object, **more: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def poll(self, seconds: float) -> None:
        self.polls += 1
        assert self.polls < 100, "it never ends"
        self._known += self._ahead[:1]
        del self._ahead[:1]

    def record(self) -> SwitchRecord | None:
        return self._known[-1] if self._known else None

    def records(self) -> list[SwitchRecord]:
        return self._known


def shown(monkeypatch: pytest.MonkeyPatch, loop: Loop, *, on_terminal: bool = False, **flags: bool) -> str:
    """What a console of 200 columns is given."""
    monkeypatch.setattr(status, "LoopClient", loop)
    console = Console(width=200, force_terminal=on_terminal, record=True)
    show_status(Settings(), "c1", console, **{"watch": False, "as_json": False, **flags})
    return console.export_text()


def stages(*stages: str, **more: Any) -> list[SwitchRecord]:
    return [order_record(verdict=SwitchStage(stage), sequence=100 + n, **more) for n, stage in enumerate(stages)]


def test_it_says_where_the_switch_stands_or_how_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[build]" in shown(monkeypatch, Loop(*stages("build")))
    assert "begin with `headgate switch register --cluster c1`" in shown(monkeypatch, Loop())


@for_each(("loop", "verdict"), [(Loop(*stages("build")), "build"), (Loop(), None)])
def test_a_program_gets_the_record_or_null(
    loop: Loop, verdict: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(monkeypatch, loop, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told and told["verdict"]) == verdict


def test_watched_by_a_program_each_new_record_is_a_line_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build, promote, hold, done, after = stages("build", "promote", "hold", "done", "cleanup")
    loop = Loop(build, build, promote, hold, hold, done, after, known=0)
    shown(monkeypatch, loop, watch=True, as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each and each["verdict"] for each in told] == [None, "build", "promote", "hold", "done"]


def test_on_a_terminal_one_view_is_drawn_anew_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, Loop(*stages("build", "hold", "rolled_back")), watch=True, on_terminal=True)
    assert "[rolled_back]" in text


# --- the ledgers that failed, and those to delete

R, V = SwitchReason, SwitchVerdict


def said(verdict: SwitchVerdict, stage: LedgerStage, reason: SwitchReason = R.COPIED, **more: Any) -> SwitchDecision:
    made = order(verdict, reason=reason, **({"explanation": "ledger 7 stays: the disk is gone"} | more))
    assert made.ledger is not None
    return made.model_copy(update={"ledger": made.ledger.model_copy(update={"stage": stage})})


@for_each(
    ("decision", "failed"),
    [
        (said(V.LEDGER, L.BUILD_FAILED, R.SOURCE_UNREADABLE), True),
        (said(V.REMAP_REQUIRED, L.FOREIGN_CONFLICT, R.FOREIGN_ID), True),
        (said(V.LEDGER, L.PROMOTE_DEFERRED, R.RETRIES_EXHAUSTED), True),
        (said(V.LEDGER, L.PROMOTED, R.NOT_READY), True),
        (said(V.HALT, L.PROMOTING, R.WIDE_CHANGE), True),
        (said(V.LEDGER, L.BUILT), False),
        (said(V.LEDGER, L.PROMOTED, R.ATTRIBUTED), False),
        (said(V.START_COPY, L.COPYING, R.NEXT_IN_PLAN), False),
    ],
)
def test_what_failed_is_what_nobody_tries_again(decision: SwitchDecision, failed: bool) -> None:
    assert has_failed(decision) is failed


@pytest.mark.parametrize(("stage", "cleaned"), [(L.PROMOTED, True), (L.DELETE_INTENT, True), (L.CLEANED, False)])
def test_what_is_cleaned_up_is_what_is_promoted(stage: LedgerStage, cleaned: bool) -> None:
    assert is_to_clean(said(V.LEDGER, stage)) is cleaned


def test_ledgers_of_an_earlier_switch_are_left_out() -> None:
    mine, other = said(V.LEDGER, L.BUILD_FAILED), said(V.LEDGER, L.BUILD_FAILED, target="third", subject="c1/ledgers/8")
    assert select_ledgers([other, mine], record()) == [mine]


def test_a_failed_ledger_is_shown_with_its_reason() -> None:
    out = StringIO()
    console = Console(file=out, width=200)
    for line in ledger_lines([said(V.LEDGER, L.BUILD_FAILED, R.SOURCE_UNREADABLE)], "none", console):
        console.print(line)
    assert "the disk is gone" in out.getvalue()
    assert "source_unreadable" in out.getvalue()
    assert [str(line) for line in ledger_lines([], "No ledger of it failed.", console)] == ["No ledger of it failed."]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_on_a_terminal_sentences_break_between_words_and_paths_never(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "ledger 7 stays in old: " + "its disk is " * 9
    failed = said(V.LEDGER, L.BUILD_FAILED, R.SOURCE_UNREADABLE, explanation=why)
    monkeypatch.setattr(status, "InForceReader", lambda *_: Ledgers(record(), failed, said(V.LEDGER, L.BUILT)))
    monkeypatch.setattr(status, "sentence_console", lambda: Console(width=columns, force_terminal=True))
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
    show_ledgers(settings, "c1", has_failed, "none", as_json=False)
    head, *lines, path, count = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert (head, count) == ("7 cursor: build_failed, source_unreadable", "1 ledger")
    assert path == "    /managed-ledgers/t/n/persistent/a/sub"
    assert max(map(len, lines)) <= columns
    assert " ".join(line.strip() for line in lines) == why.strip()


class Ledgers(nullcontext["Ledgers"]):
    """The decisions in force about a switch."""

    def __init__(self, *decisions: Decision) -> None:
        super().__init__(self)
        self._decisions = decisions

    def now(self) -> "Ledgers":
        return self

    def decisions(self) -> Sequence[Decision]:
        return self._decisions
