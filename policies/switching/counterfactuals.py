"""The counterfactuals of a decision: what would have to change for a switch to advance, or for a rejection to end.

A switch waits for commands, acks and results, and not for a number to cross a threshold. So its counterfactuals are
tables by code and by stage.
"""

from collections.abc import Mapping

from policies.decisions import Otherwise
from policies.switching.decisions import ORDERS, RejectCode, SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.state import SwitchStage
from policies.units import counted, format_instant

_ADVANCE, _HALT = SwitchVerdict.ADVANCE.value, SwitchVerdict.HALT.value
_RESUME = "`headgate switch resume --cluster {cluster}`"

_UNTIL: Mapping[RejectCode, str] = {
    RejectCode.URI_DUPLICATE: "the cluster is unregistered under its other name",
    RejectCode.NAME_CONFLICT: "another name is given, or the cluster of that name is unregistered",
    RejectCode.IN_USE: "it is neither active nor part of a switch, and nothing refers to it",
    RejectCode.PRECHECK_FAILED: "a precheck not older than `precheck_validity` says ready, and its digest is quoted",
    RejectCode.COLLISION: "no id to import is taken in the target, and its next ids are above all of the source's",
    RejectCode.SWITCH_IN_PROGRESS: "the switch under way has ended",
    RejectCode.NOT_FOUND: "there is such a cluster or switch: `headgate switch status` lists them",
    RejectCode.WINDOW_EXPIRED: "never: the window for a rollback is over; a switch the other way is another switch",
    RejectCode.CLEANUP_STARTED: "never: ledgers were deleted; a switch the other way is another switch",
    RejectCode.WINDOW_NOT_ELAPSED: "the time has come that `cleanup_from` of the switch's record names",
    RejectCode.ALREADY_ACTIVE: "another cluster is the active one",
    RejectCode.BROKERS_BEHIND: "every live broker follows the directive and writes where it says",
    RejectCode.CONTESTED: "a person has resolved what somebody else wrote into the registry",
    RejectCode.CLIENT_IN_USE: "no broker reads from it, and nothing refers to it",
    RejectCode.INVALID_TRANSITION: "the switch stands where the command fits; now it does not",
}

_NEXT: Mapping[SwitchStage, tuple[tuple[SwitchStage, str], ...]] = {
    SwitchStage.NONE: ((SwitchStage.TRIGGERED, "a person starts a switch, on a precheck that says ready"),),
    SwitchStage.REGISTERED: ((SwitchStage.PRECHECKED, "a precheck says ready"),),
    SwitchStage.PRECHECKED: ((SwitchStage.TRIGGERED, "a person starts the switch and quotes the report's digest"),),
    SwitchStage.TRIGGERED: (
        (SwitchStage.LIVE_DUAL_READ, "all {live} live brokers follow epoch {epoch} ({acked} do)"),
        (SwitchStage.REJECTED, "a broker cannot reach {target} before any has moved"),
        (SwitchStage.ABORTED, "a person aborts it"),
    ),
    SwitchStage.LIVE_DUAL_READ: ((SwitchStage.BUILD, "the inventory of all that names ledgers is complete"),),
    SwitchStage.BUILD: (
        (SwitchStage.PROMOTE, "each of {ledgers} is copied or stays behind for good"),
        (SwitchStage.ROLLBACK, "a person rolls it back until {rollback_until}"),
    ),
    SwitchStage.PROMOTE: (
        (SwitchStage.HOLD, "each of {ledgers} is attributed to {target} or stays behind for good"),
        (SwitchStage.ROLLBACK, "a person rolls it back until {rollback_until}"),
    ),
    SwitchStage.HOLD: (
        (SwitchStage.CLEANUP, "a person cleans up, from {cleanup_from} on, or ends it at any hour"),
        (SwitchStage.ROLLBACK, "a person rolls it back until {rollback_until}"),
    ),
    SwitchStage.CLEANUP: (
        (SwitchStage.DONE, "what was promoted is deleted from {source}, and the registry says so"),
        (SwitchStage.DONE_WITH_FAILURES, "some of it stays, or a status is not written"),
    ),
    SwitchStage.DONE: (
        (SwitchStage.TRIGGERED, "a person starts another switch; `close-client` and `unregister` let go of {source}"),
    ),
    SwitchStage.DONE_WITH_FAILURES: ((SwitchStage.BUILD, "a person starts it again, and what failed is tried anew"),),
    SwitchStage.REJECTED: ((SwitchStage.TRIGGERED, "brokers can reach {target}, and a person starts it again"),),
    SwitchStage.ROLLBACK: ((SwitchStage.ROLLED_BACK, "each of {ledgers} names {source} again"),),
    SwitchStage.ROLLED_BACK: ((SwitchStage.TRIGGERED, "a person starts another switch"),),
    SwitchStage.ROLLED_BACK_WITH_FAILURES: (
        (SwitchStage.ROLLBACK, "a person rolls it back again, and what failed is tried anew"),
    ),
    SwitchStage.ABORTED: ((SwitchStage.TRIGGERED, "a person starts another switch"),),
}


def counterfactuals(decision: SwitchDecision) -> tuple[Otherwise, ...]:
    """Return what ends an order, or what lets a rejected command pass."""
    verdict, resume = decision.verdict, _RESUME.format(cluster=decision.cluster)
    if decision.code is not None:
        return (Otherwise(_ADVANCE, _UNTIL[decision.code]),)
    if verdict in ORDERS:
        done = f"an executor answers order {decision.op} that it is done" if decision.op else "the registry shows it"
        return Otherwise(_ADVANCE, done), Otherwise(_HALT, "it fails too often, or what is found is not as expected")
    if verdict is SwitchVerdict.HALT:
        return (Otherwise(_ADVANCE, f"a person drives it on: {resume}"),)
    if verdict in (SwitchVerdict.BLOCKED, SwitchVerdict.DEGRADED):
        return (Otherwise(_ADVANCE, "what its sentence names is no longer so"),)
    if verdict is SwitchVerdict.REMAP_REQUIRED:
        remap = "its id is free in the target, or `strategies` lets its kind be remapped"
        return (Otherwise(SwitchVerdict.START_COPY.value, remap),)
    if verdict is SwitchVerdict.PREVIEW:
        return (Otherwise(_ADVANCE, "it is asked for without --dry-run"),)
    # Only the record has the numbers of the whole switch.
    names = {
        "source": decision.source, "target": decision.target, "epoch": decision.epoch, "live": "the", "acked": "some",
        "ledgers": "the ledgers", "rollback_until": "its window ends", "cleanup_from": "the end of `cleanup_after`",
    }  # fmt: skip
    return tuple(Otherwise(stage.value, when.format_map(names)) for stage, when in _NEXT[decision.stage])


def record_counterfactuals(record: SwitchRecord) -> tuple[Otherwise, ...]:
    """Return what ends a standstill, and then the condition of each stage that may follow."""
    live, until, cleanup = record.brokers.live, record.rollback_until, record.cleanup_from
    names = {
        "source": record.source,
        "target": record.target,
        "epoch": record.epoch,
        "live": "the" if live is None else live,
        "acked": record.brokers.acked,
        "ledgers": counted(sum(record.ledgers.values()), "ledger"),
        "rollback_until": format_instant(until) if until else "its window ends",
        "cleanup_from": format_instant(cleanup) if cleanup else "the end of `cleanup_after`",
    }
    is_final = until is not None and until <= record.decided_at
    following = (
        Otherwise(stage.value, when.format_map(names))
        for stage, when in _NEXT[record.verdict]
        if not (is_final and stage is SwitchStage.ROLLBACK and "rollback_until" in when)
    )
    hold = record.standstill
    return (*(() if hold is None else (Otherwise(_ADVANCE, f"this ends: {hold.why} ({hold.ends_with})"),)), *following)
