"""The commands that an operator may give at the present stage of a switch; shown with its status."""

import re
from collections.abc import Iterator
from datetime import datetime

from policies.switching.decisions import SwitchRecord
from policies.switching.state import REVERSIBLE, UNDONE, SwitchStage

S = SwitchStage
_FOREIGN_DIRECTIVE = re.compile(r"epoch \d+ directs brokers")
"""`resume` answers a foreign directive by a later one. Any other contest must be resolved in the registry."""
_UNDER_WAY = (S.TRIGGERED, *REVERSIBLE, S.CLEANUP, S.ROLLBACK)


def next_commands(record: SwitchRecord, now: datetime) -> Iterator[str]:
    """Return the commands that are accepted now, each with its effect; the likeliest comes first."""
    at = record.verdict
    if record.contested:
        if _FOREIGN_DIRECTIVE.match(record.contested):
            yield "`resume` (supersedes the foreign directive by ours)"
        return  # until then, every command that would give an order is rejected
    if record.halted or record.paused:
        yield "`resume` (goes on)"
    yield from _commands_back(record, now)
    yield from _commands_to_end(record, now)
    if at is S.ROLLED_BACK_WITH_FAILURES:
        yield "`rollback` (tries again what was not taken back)"
    if at is S.DONE_WITH_FAILURES:
        yield f"`start --target {record.target}` (tries the ledgers that stayed behind again)"
    if at in (S.CLEANUP, S.ROLLBACK, S.DONE_WITH_FAILURES):
        yield "`abort` (ends it where it stands)"
    if at in _UNDER_WAY and not (record.paused or record.halted):
        yield "`pause` (nothing more is ordered)"


def _commands_to_end(record: SwitchRecord, now: datetime) -> Iterator[str]:
    at, brokers = record.verdict, record.brokers
    stands = record.halted or record.paused or record.recovering or brokers.awaited or brokers.astray
    if at is S.HOLD and record.cleanup_from is not None and now >= record.cleanup_from and not stands:
        yield f"`cleanup` (lists what to delete in {record.source}; `--execute` deletes it)"
    if at is S.HOLD:
        yield f"`end` (leaves hold, and keeps the ledgers in {record.source}; `--delete` deletes them at once)"
    elif at in REVERSIBLE and record.rollback_until is not None and now >= record.rollback_until:
        yield f"`end` (ends it where it stands; what has not moved stays in {record.source})"


def _commands_back(record: SwitchRecord, now: datetime) -> Iterator[str]:
    at = record.verdict
    if at is S.TRIGGERED:
        yield f"`abort` (sends brokers back to {record.source})"
    elif at in REVERSIBLE and record.rollback_until is not None and now < record.rollback_until:
        yield f"`rollback` (attributions go back to {record.source}, brokers stay)"
        yield "`rollback --with-brokers` (brokers too)"
    elif at in UNDONE | {S.REJECTED}:
        home = next((name for name, status in record.registry.items() if status == "active"), None)
        if record.active not in (None, home):
            yield f"`rollback --with-brokers` (brokers go back to {home})"
