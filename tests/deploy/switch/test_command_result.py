"""What was decided about a command: which decisions count, what is printed, and the exit status."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from deploy.switch.loop_client import SHOWN, CommandResult, ExitStatus, event_id, find_result, result_lines
from policies.switching.decisions import RejectCode, SwitchDecision, SwitchReason, SwitchVerdict
from policies.switching.readings import CommandName, SwitchCommand
from tests.deploy.switch.decisions import Loop, command, record, register


def printed(result: CommandResult) -> str:
    out = StringIO()
    console = Console(file=out, width=200)
    for line in result_lines(result):
        console.print(line, highlight=False)
    return out.getvalue()


def asked(loop: Loop, given: SwitchCommand) -> CommandResult:
    loop.step(given)
    result = find_result(given, [d for d in loop.decisions if isinstance(d, SwitchDecision)])
    assert result is not None
    return result


def with_old_and_new(**settings: Any) -> Loop:
    loop = Loop(**settings)
    loop.step(register("old", "1"))
    loop.step(register("new", "2"))
    return loop


def test_a_command_that_leads_to_an_order_was_accepted() -> None:
    result = asked(Loop(), register("old"))
    assert (result.exit_status, result.refusal) == (ExitStatus.ACCEPTED, None)
    text = printed(result)
    assert text.startswith("write-registry: old (zk+hierarchical://old:2181/ledgers) is registered as active\n")
    assert "register k, epoch 0" in text


def test_a_command_that_is_rejected_says_its_code_and_why() -> None:
    result = asked(with_old_and_new(), register("third", "3", instance="id-old"))
    assert (result.exit_status, result.plain()["code"]) == (ExitStatus.REJECTED, "URI_DUPLICATE")
    assert printed(result).startswith("REJECTED URI_DUPLICATE: id-old/ledgers is already registered as old\n")


@pytest.mark.parametrize(
    ("given", "ended", "begins"),
    [
        (register("third", "3", dry_run=True), ExitStatus.ACCEPTED, "preview: would: third ("),
        (
            register("old", "3", "id-x", dry_run=True),
            ExitStatus.REJECTED,
            "preview NAME_CONFLICT: would be rejected: old",
        ),
    ],
    ids=["accepted", "rejected"],
)
def test_a_preview_ends_as_the_command_itself_would(given: SwitchCommand, ended: ExitStatus, begins: str) -> None:
    result = asked(with_old_and_new(), given)
    assert result.exit_status is ended
    assert printed(result).startswith(begins)


def test_other_commands_decisions_are_no_result() -> None:
    loop, mine = with_old_and_new(), command(CommandName.ROLLBACK, "mine")
    loop.step(command(CommandName.ROLLBACK, "theirs"))
    decisions = [d for d in loop.decisions if isinstance(d, SwitchDecision)]
    assert find_result(mine, decisions) is None
    assert find_result(mine.model_copy(update={"cluster": "c2"}), decisions) is None
    loop.step(mine)
    result = find_result(mine, [d for d in loop.decisions if isinstance(d, SwitchDecision)])
    assert result is not None
    assert [d.subject for d in result.decisions] == ["c1/commands/mine"]


def decision(verdict: SwitchVerdict, subject: str, sequence: int = 1, **more: Any) -> SwitchDecision:
    about = record(subject=subject, sequence=sequence, decision_id=f"{subject}{sequence}", evidence=(event_id(START),))
    kept = {k: v for k, v in about.model_dump().items() if k in SwitchDecision.model_fields and k != "ledgers"}
    fields = {
        "stage": "build",
        "lease_token": 1,
        "op": 0,
        "valid_until": None,
        "reason": SwitchReason.COMMANDED,
        **more,
    }
    return SwitchDecision.model_validate({**kept, "verdict": verdict, **fields})


START = command(CommandName.START, "s", target="new")


def test_a_halt_that_a_command_leads_to_is_no_success() -> None:
    result = CommandResult(
        START, (decision(SwitchVerdict.ADVANCE, "c1/switch"), decision(SwitchVerdict.HALT, "c1/switch", 2))
    )
    assert result.exit_status is ExitStatus.REJECTED
    assert printed(result).startswith("halt: ")


def test_a_rejection_of_something_else_on_the_way_does_not_reject_the_command() -> None:
    other = decision(SwitchVerdict.REJECT, "c1/ledgers/5", 2, code=RejectCode.COLLISION)
    result = CommandResult(START, (decision(SwitchVerdict.ADVANCE, "c1/switch"), other))
    assert (result.exit_status, result.refusal) == (ExitStatus.ACCEPTED, None)


def test_repeated_decisions_are_told_once_and_in_their_order() -> None:
    first, second = (
        decision(SwitchVerdict.ADVANCE, "c1/switch", 1),
        decision(SwitchVerdict.WRITE_DIRECTIVE, "c1/directive", 2),
    )
    result = find_result(START, [second, first, second])
    assert result is not None
    assert result.decisions == (first, second)


def test_of_very_many_decisions_the_others_are_counted() -> None:
    many = tuple(decision(SwitchVerdict.LEDGER, f"c1/ledgers/{i}", i) for i in range(1, SHOWN + 4))
    lines = printed(CommandResult(START, many)).splitlines()
    assert len(lines) == SHOWN + 2
    assert lines[SHOWN] == "and 3 more decisions"


def test_orders_of_a_shadow_policy_are_said_to_go_nowhere() -> None:
    assert "no executor carries out these orders" in printed(asked(Loop(mode="shadow"), register("old")))
    assert "nobody" not in printed(asked(Loop(), register("old")))


def test_a_program_gets_everything() -> None:
    plain = asked(with_old_and_new(), register("third", "3", instance="id-old")).plain()
    assert plain["decisions"][0]["code"] == "URI_DUPLICATE"
    del plain["decisions"]
    assert plain == {
        "cluster": "c1", "command": "register", "idempotency_key": "3", "dry_run": False, "accepted": False,
        "code": "URI_DUPLICATE", "earlier": False,
    }  # fmt: skip


def test_the_same_key_is_the_same_event_in_a_cluster_and_in_no_other() -> None:
    one, again = register("old"), command(CommandName.ROLLBACK)
    assert event_id(one) == event_id(again)
    assert event_id(one) != event_id(one.model_copy(update={"cluster": "c2"}))
    assert event_id(one) != event_id(one.model_copy(update={"idempotency_key": "other"}))
