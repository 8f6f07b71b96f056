"""Which ledgers are shown as failed, and which as those that a clean-up deletes."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from deploy.switch.ledger_views import has_failed, is_to_clean, ledger_lines, select_ledgers
from policies.switching.decisions import SwitchDecision, SwitchReason, SwitchVerdict
from policies.switching.state import LedgerStage
from tests.connectors.switching.orders import order
from tests.deploy.switch.decisions import record

L, R, V = LedgerStage, SwitchReason, SwitchVerdict


def said(verdict: SwitchVerdict, stage: LedgerStage, reason: SwitchReason = R.COPIED, **more: Any) -> SwitchDecision:
    made = order(verdict, reason=reason, explanation="ledger 7 stays: the disk is gone", **more)
    assert made.ledger is not None
    return made.model_copy(update={"ledger": made.ledger.model_copy(update={"stage": stage})})


@pytest.mark.parametrize(
    ("decision", "failed"),
    [
        (said(V.LEDGER, L.BUILD_FAILED, R.SOURCE_UNREADABLE), True),
        (said(V.REMAP_REQUIRED, L.FOREIGN_CONFLICT, R.FOREIGN_ID), True),
        (said(V.LEDGER, L.PROMOTE_DEFERRED, R.RETRIES_EXHAUSTED), True),
        (said(V.LEDGER, L.PROMOTED, R.NOT_READY), True),
        (said(V.HALT, L.PROMOTING, R.WIDE_CHANGE), True),
        (said(V.LEDGER, L.BUILT), False),
        (said(V.LEDGER, L.PROMOTED, R.ATTRIBUTED), False),
        (said(V.START_COPY, L.COPYING, R.EXECUTOR_FAILED), False),
    ],
    ids=["unreadable", "taken", "deferred", "deletion given up", "halted", "built", "promoted", "tried again"],
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
    for line in ledger_lines([said(V.LEDGER, L.BUILD_FAILED, R.SOURCE_UNREADABLE)], "none"):
        Console(file=out, width=200).print(line)
    assert "the disk is gone" in out.getvalue()
    assert "source_unreadable" in out.getvalue()
    assert [str(line) for line in ledger_lines([], "No ledger of it failed.")] == ["No ledger of it failed."]


def test_the_path_of_a_znode_is_never_cut() -> None:
    out = StringIO()
    for line in ledger_lines([said(V.LEDGER, L.BUILD_FAILED, R.SOURCE_UNREADABLE)], "none"):
        Console(file=out, width=60).print(line)
    cells = [line.split("┃")[-1].split("│")[-2].strip() for line in out.getvalue().splitlines() if line.count("│") > 1]
    assert "".join(cells).endswith("/managed-ledgers/t/n/persistent/a/sub")
