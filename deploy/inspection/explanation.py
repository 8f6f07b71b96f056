"""Why a decision was made: its audit entry, the readings it rests on, and what actuators reported.

Nothing is recomputed: explanation, numbers, evidence and reports are the ones recorded at the time.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from operator import itemgetter
from typing import Any

from connectors.exporter.page.status import build_in_force
from connectors.foreign_json import UnreadableJsonError, read_json
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.history import read_history
from policies.effects import InForce
from policies.registry import AUDIT, report_policies, topic_readers
from policies.wire import AUDIT_TYPE

_LOOK_BACK = timedelta(days=1)
_EVIDENCE_BEFORE = timedelta(hours=1)
"""Readings are valid for minutes, so the evidence of a decision is hardly older."""
_REPORTED_WITHIN = timedelta(hours=1)
_CLOCKS_DIFFER = timedelta(minutes=1)
_MOST_COMMON_REPORTS = 5
_REPORT_FIELDS = ("outcome", "done_at", "detail", "attempt", "explanation")


@dataclass(frozen=True)
class Explanation:
    """A decision, and all that the topics still contain about it."""

    decision_type: str
    decision: dict[str, Any]
    numbers: dict[str, Any]
    otherwise: tuple[dict[str, str], ...] = ()
    """The counterfactuals: each has a ``verdict`` and the condition ``when``."""
    observations: tuple[dict[str, Any], ...] = ()
    """The events of its evidence, as far as the topics still contain them."""
    reports: tuple[dict[str, Any], ...] = field(default=())
    """The actuators' reports on it."""
    earlier_reports: tuple[dict[str, Any], ...] = ()
    """If there are none, the last reports on an earlier decision: actuators do not carry out a decision that repeats
    the last one or changes too little."""
    in_force: InForce | None = None
    """The wanted and the set values; None for an alert, and without an actuator."""

    @property
    def missing(self) -> list[str]:
        """Ids of evidence that the topics no longer contain."""
        found = {event["id"] for event in self.observations}
        return [each for each in self.decision.get("evidence", ()) if each not in found]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "type": self.decision_type,
            "decision": self.decision,
            "numbers": self.numbers,
            "otherwise": list(self.otherwise),
            "observations": list(self.observations),
            "evidence_no_longer_kept": self.missing,
            "reports": list(self.reports),
            "earlier_reports": list(self.earlier_reports),
            "in_force": None if self.in_force is None else build_in_force(self.in_force).model_dump(mode="json"),
        }


Kind = tuple[str, str, str]
"""Subject, kind of decision, and name of the alert (empty for other decisions)."""


@dataclass
class _Entries:
    """The audit entries of a subject. A day of the audit may be gigabytes, so no others are kept."""

    latest: dict[Kind, dict[str, Any]] = field(default_factory=dict)
    """The last entry of each kind."""
    earlier: defaultdict[Kind, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The decision ids of each kind, the newest last."""
    subjects: set[str] = field(default_factory=set)
    """The subjects of all entries."""
    reports: defaultdict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """The actuators' reports by decision id."""
    common: defaultdict[tuple[str, str], dict[str, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    """By policy and cluster, the last report on each target of an actuator that carries out all decisions on a cluster
    together, such as the limit of brokers for all placement groups. Such a report names no decision."""


class Audit:
    """The audit of the day before an instant, and the observed topics. The audit is read once, on first use.

    Args:
        subject: the subject, or its end (`acme/orders` of `messaging/acme/orders`) if only one subject ends so.
    """

    def __init__(self, connection: KafkaConnection, prefix: str, subject: str, at: datetime) -> None:
        self._connection = connection
        self._prefix = prefix
        self._subject = subject
        self._at = at

    def explain(self) -> list[Explanation]:
        """Return the decisions about the subject that were in force: the last one of each kind, and of each alert.

        Raises:
            UserError: Kafka does not answer, or a topic is missing.
        """
        subjects = {kind[0] for kind in self._entries.latest}
        meant = self._subject if self._subject in subjects or len(subjects) > 1 else next(iter(subjects), None)
        return [self._explain_entry(kind, entry) for kind, entry in self._entries.latest.items() if kind[0] == meant]

    def subjects(self) -> list[str]:
        """Return every subject of the audit, sorted; raises as `explain` does."""
        return sorted(self._entries.subjects)

    @cached_property
    def _entries(self) -> _Entries:
        """The audit until the instant, and the reports after it."""
        told = _Entries()
        for event in self._events((AUDIT,), self._at - _LOOK_BACK, self._at + _REPORTED_WITHIN):
            entry = event["data"]
            if event.get("type") != AUDIT_TYPE:
                self._take_report(event, told)
            elif datetime.fromisoformat(entry["decision"]["decided_at"]) <= self._at:
                subject = entry["decision"]["subject"]
                told.subjects.add(subject)
                if f"/{subject}".endswith(f"/{self._subject}"):
                    kind = (subject, entry["decision_type"], entry["decision"].get("alert", ""))
                    told.latest[kind] = entry
                    told.earlier[kind].append(entry["decision"]["decision_id"])
        return told

    def _take_report(self, event: dict[str, Any], told: _Entries) -> None:
        report = event["data"]
        if "decision_id" in report:
            told.reports[str(report["decision_id"])].append(_shorten_report(event))
            return
        policy = next((name for kind, name in report_policies().items() if kind.event_type == event.get("type")), None)
        if policy is not None and datetime.fromisoformat(event["time"]) <= self._at + _CLOCKS_DIFFER:
            told.common[policy, report["cluster"]][event["subject"]] = _shorten_report(event)

    def _explain_entry(self, kind: Kind, entry: dict[str, Any]) -> Explanation:
        decision, reports = entry["decision"], self._entries.reports
        reported = [reports[each] for each in self._entries.earlier[kind] if each in reports]
        of_it = tuple(reports.get(decision["decision_id"], ()))
        if "alert" not in decision and not of_it:
            common = self._entries.common.get((decision["policy"], decision["cluster"]), {}).values()
            of_it = tuple(sorted(common, key=itemgetter("time"))[-_MOST_COMMON_REPORTS:])
        return Explanation(
            entry["decision_type"],
            decision,
            entry.get("numbers", {}),
            tuple(entry.get("otherwise", ())),
            tuple(self._evidence(decision, entry.get("observations", ()))),
            of_it,
            tuple(reported[-1]) if reported and not of_it else (),
        )

    def _evidence(self, decision: dict[str, Any], kept: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the evidence from the audit, and the rest from the observed topics, as far as they still contain it."""
        yield from kept
        wanted = set(decision.get("evidence", ())) - {event.get("id") for event in kept}
        decided_at = datetime.fromisoformat(decision["decided_at"])
        topics = [topic for topic, policies in topic_readers().items() if decision["policy"] in policies]
        if wanted:
            events = self._events(topics, decided_at - _EVIDENCE_BEFORE, decided_at + _CLOCKS_DIFFER)
            yield from (event for event in events if event.get("id") in wanted)

    def _events(self, topics: Sequence[str], since: datetime, to: datetime) -> Iterator[dict[str, Any]]:
        names = [f"{self._prefix}.{topic}" for topic in topics]
        for record in read_history(self._connection, names, since, to):
            try:
                event = read_json(record.value or b"", Any)
            except UnreadableJsonError:
                continue
            if isinstance(event, dict) and isinstance(event.get("data"), dict):
                yield event


def _shorten_report(event: dict[str, Any]) -> dict[str, Any]:
    said = {name: event["data"][name] for name in _REPORT_FIELDS if event["data"].get(name) is not None}
    return {"type": event.get("type"), "source": event.get("source"), "time": event.get("time"), **said}
