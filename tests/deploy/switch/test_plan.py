"""Which ledgers are listed as failed or as those to delete."""

import re
from collections.abc import Sequence
from contextlib import nullcontext
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from deploy.settings.application import Settings
from deploy.switch import plan
from deploy.switch.plan import has_failed, is_to_clean, ledger_lines, select_ledgers, show_ledgers
from policies.decisions import Decision
from policies.switching.decisions import SwitchDecision, SwitchReason, SwitchVerdict
from policies.switching.state import LedgerStage
from tests.cases import for_each
from tests.connectors.switching.orders import order
from tests.deploy.switch.decisions import record

L, R, V = LedgerStage, SwitchReason, SwitchVerdict


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
    monkeypatch.setattr(plan, "InForceReader", lambda *_: Ledgers(record(), failed, said(V.LEDGER, L.BUILT)))
    monkeypatch.setattr(plan, "sentence_console", lambda: Console(width=columns, force_terminal=True))
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
