"""The brokers: who is alive, and what each says of itself."""

from msgspec.structs import replace

from policies.switching.events import BrokerSeen, MembersSeen
from policies.switching.readings import SwitchBroker
from policies.switching.state import NEVER, BrokerReport, LiveBrokers, SwitchingState, put


def broker_of(reading: SwitchBroker, at_ms: int) -> BrokerSeen:
    """What a broker's agent says."""
    return BrokerSeen(
        reading.broker,
        reading.sequence,
        reading.epoch,
        reading.client_init_failed,
        reading.writes,
        reading.reads,
        at_ms,
    )


def fold_members(known: LiveBrokers | None, seen: MembersSeen) -> LiveBrokers | None:
    """The live brokers; None when this was read no later than what is known."""
    if known is not None and seen.at_ms <= known.at_ms:
        return None
    return LiveBrokers(tuple(sorted(set(seen.brokers))), seen.at_ms)


def fold_report(state: SwitchingState, seen: BrokerSeen) -> SwitchingState | None:
    """What the broker writes and reads, whatever it says of the directive; None when it was heard before."""
    known = next((b for b in state.brokers if b.name == seen.broker), None)
    if known is not None and seen.sequence <= known.sequence:
        return None
    report = known or BrokerReport(seen.broker, NEVER, NEVER)
    report = replace(report, sequence=seen.sequence, at_ms=seen.at_ms, writes=seen.writes, reads=seen.reads)
    return replace(state, brokers=put(state.brokers, report))
