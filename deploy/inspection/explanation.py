"""Why a decision was made: the decision as the audit has it, what it rests on, and what actuators said of it.

Nothing is derived anew: sentence, numbers, evidence and reports are those that were written then.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.history import read_history
from policies.registry import AUDIT, observed_topics
from policies.wire import AUDIT_TYPE

_LOOK_BACK = timedelta(days=1)
_EVIDENCE_BEFORE = timedelta(hours=1)
"""What a decision rests on is hardly older: readings cease to count after minutes."""
_REPORTED_WITHIN = timedelta(hours=1)
_CLOCKS_DIFFER = timedelta(minutes=1)
_REPORT_FIELDS = ("outcome", "done_at", "detail", "attempt")


@dataclass(frozen=True)
class Explanation:
    """A decision, and all that the topics still hold about it."""

    decision_type: str
    decision: dict[str, Any]
    numbers: dict[str, Any]
    observations: tuple[dict[str, Any], ...] = ()
    """The events that its evidence names, as far as they are still there."""
    reports: tuple[dict[str, Any], ...] = field(default=())
    """What actuators said of it."""

    @property
    def missing(self) -> list[str]:
        """Ids of evidence that the topics no longer hold."""
        found = {event["id"] for event in self.observations}
        return [each for each in self.decision.get("evidence", ()) if each not in found]

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "type": self.decision_type,
            "decision": self.decision,
            "numbers": self.numbers,
            "observations": list(self.observations),
            "evidence_no_longer_kept": self.missing,
            "reports": list(self.reports),
        }


class Audit:
    """The audit of the day before an instant, and the observed topics. The audit is read once, when it is first asked.

    Args:
        connection: how to reach the loop's own Kafka.
        prefix: of its topics.
        at: the instant.
    """

    def __init__(self, connection: KafkaConnection, prefix: str, at: datetime) -> None:
        self._connection = connection
        self._prefix = prefix
        self._at = at

    def explain(self, subject: str) -> list[Explanation]:
        """What was in force about a subject: the last decision of each kind, and of each alert.

        Raises:
            UserError: Kafka does not answer, or a topic is missing.
        """
        latest: dict[tuple[str, str], dict[str, Any]] = {}
        for entry in self._entries():
            if entry["decision"]["subject"] == subject:
                latest[entry["decision_type"], entry["decision"].get("alert", "")] = entry
        return [self._explained(entry) for entry in latest.values()]

    def subjects(self) -> list[str]:
        """Every subject that something was decided about, sorted; raises as `explain` does."""
        return sorted({entry["decision"]["subject"] for entry in self._entries()})

    @cached_property
    def _told(self) -> list[dict[str, Any]]:
        """All events of the audit, and of what was reported afterwards."""
        return list(self._events((AUDIT,), self._at - _LOOK_BACK, self._at + _REPORTED_WITHIN))

    def _entries(self) -> Iterator[dict[str, Any]]:
        """What was decided by the instant, in its order."""
        for entry in (event["data"] for event in self._told if event.get("type") == AUDIT_TYPE):
            if datetime.fromisoformat(entry["decision"]["decided_at"]) <= self._at:
                yield entry

    def _explained(self, entry: dict[str, Any]) -> Explanation:
        decision = entry["decision"]
        return Explanation(
            entry["decision_type"],
            decision,
            entry.get("numbers", {}),
            tuple(self._evidence(decision)),
            tuple(self._reports(decision["decision_id"])),
        )

    def _evidence(self, decision: dict[str, Any]) -> Iterator[dict[str, Any]]:
        wanted, decided_at = set(decision.get("evidence", ())), datetime.fromisoformat(decision["decided_at"])
        topics = [topic for topic, policy in observed_topics().items() if policy == decision["policy"]]
        if wanted:
            events = self._events(topics, decided_at - _EVIDENCE_BEFORE, decided_at + _CLOCKS_DIFFER)
            yield from (event for event in events if event.get("id") in wanted)

    def _reports(self, decision_id: str) -> Iterator[dict[str, Any]]:
        for event in self._told:
            data = event["data"]
            if event.get("type") != AUDIT_TYPE and data.get("decision_id") == decision_id:
                said = {name: data[name] for name in _REPORT_FIELDS if data.get(name) is not None}
                yield {"type": event["type"], "source": event.get("source"), "time": event.get("time"), **said}

    def _events(self, topics: Sequence[str], since: datetime, to: datetime) -> Iterator[dict[str, Any]]:
        names = [f"{self._prefix}.{topic}" for topic in topics]
        for record in read_history(self._connection, names, since, to):
            try:
                event = json.loads(record.value)
            except ValueError:
                continue
            if isinstance(event, dict) and isinstance(event.get("data"), dict):
                yield event
