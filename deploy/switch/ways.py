"""Lists the commands that a person may give in the current stage of a switch; shown with its status."""

import re
from collections.abc import Iterator
from datetime import datetime

from policies.switching.decisions import SwitchRecord
from policies.switching.state import SwitchStage

S = SwitchStage
_ADVANCE = re.compile(r"(\S+) (?:gives \d+ next|began at \d+)[^;]*?: advance to (HOB-\d+)")
_THEIRS = re.compile(r"epoch \d+ directs brokers")
"""Of a contested registry: `resume` answers a directive by a later one. All else a person resolves there."""
_LIVE = (S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD)
_UNDER_WAY = (S.TRIGGERED, *_LIVE, S.CLEANUP, S.ROLLBACK)


def ways(record: SwitchRecord, now: datetime) -> tuple[str, ...]:
    """The commands that lead on from here, each with what it does; the likeliest first."""
    return tuple(_ways(record, now))


def how_to_advance(record: SwitchRecord) -> str:
    """What advancing an id generator takes, where what is in the way asks for it; empty where nothing does."""
    asked = dict(_ADVANCE.findall(f"{record.halted or ''}; {record.blocked or ''}"))
    each = (f"create <ledgers root>/idgen-long/{hob} in the ZooKeeper of {name}" for name, hob in asked.items())
    then = ", then let all that writes there connect anew"
    return f"{' and '.join(each)}{then}" if asked else ""


def _ways(record: SwitchRecord, now: datetime) -> Iterator[str]:
    at = record.verdict
    if record.contested:
        if _THEIRS.match(record.contested):
            yield "`resume` (over a directive of somebody else: ours again)"
        return  # all that would give an order is refused until then
    if record.halted or record.paused:
        yield "`resume` (goes on)"
    yield from _back(record, now)
    if at is S.HOLD and record.cleanup_from is not None and now >= record.cleanup_from and not record.halted:
        yield f"`cleanup` (lists what may go from {record.source}; `--execute` deletes it)"
    if at is S.DONE_WITH_FAILURES:
        yield f"`start --target {record.target}` (tries what stayed behind again)"
    if at in (S.CLEANUP, S.ROLLBACK, S.DONE_WITH_FAILURES):
        yield "`abort` (ends it where it stands)"
    if at in _UNDER_WAY and not (record.paused or record.halted):
        yield "`pause` (nothing more is ordered)"


def _back(record: SwitchRecord, now: datetime) -> Iterator[str]:
    at = record.verdict
    if at is S.TRIGGERED:
        yield f"`abort` (sends brokers back to {record.source}, if ids allow)"
    elif at in _LIVE and record.rollback_until is not None and now < record.rollback_until:
        yield f"`rollback` (attributions go back to {record.source}, brokers stay)"
        yield "`rollback --with-brokers` (brokers too, if ids allow)"
    elif at in (S.ROLLED_BACK, S.ABORTED, S.REJECTED) and record.active not in (None, _home(record)):
        yield f"`rollback --with-brokers` (brokers go back to {_home(record)}, if ids allow)"


def _home(record: SwitchRecord) -> str | None:
    return next((name for name, status in record.registry.items() if status == "active"), None)
