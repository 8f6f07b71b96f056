"""What the decided topics say now: of each key the last decision that the fence lets pass."""

from collections.abc import Iterable
from typing import NamedTuple

from connectors.kafka.tail import Record
from policies.decisions import Decision
from policies.succession import succeeds
from policies.units import from_millis
from policies.wire import BadRecordError, EventReader

Key = tuple[str, str]
"""Topic and record key."""


class Change(NamedTuple):
    """What a record has changed."""

    key: Key
    decision: Decision | None
    """In force from now on; None: what was in force there was deleted."""


class DecisionsInForce:
    """Folds records of the decided topics. What is no decision is another's to count.

    Args:
        kinds: of decisions that the topics hold.
    """

    def __init__(self, kinds: Iterable[type[Decision]]) -> None:
        self._reader: EventReader[Decision] = EventReader(kinds)
        self._latest: dict[Key, Decision] = {}

    def take(self, record: Record) -> Change | None:
        """What the record changes; None for what is repeated, late, not believed or no decision."""
        if record.value is None:
            key = (record.topic, (record.key or b"").decode(errors="replace"))
            return None if self._latest.pop(key, None) is None else Change(key, None)
        try:
            decision = self._reader.read(record.value).data
        except BadRecordError:
            return None
        key, appended_at = (record.topic, decision.record_key()), from_millis(record.appended_ms)
        # What had expired when this one was appended is judged by that time: of history it is no longer known.
        if not succeeds(decision, self._latest.get(key), now=appended_at, appended_at=appended_at):
            return None
        self._latest[key] = decision
        return Change(key, decision)

    def all(self) -> Iterable[Decision]:
        """Everything in force, in no order."""
        return self._latest.values()
