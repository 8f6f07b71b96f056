"""Reads the actuators' reports from their compacted topic into an `EffectBook`."""

from collections.abc import Callable

from connectors.kafka.tail import Record
from policies.actuator_events import ActuatorEvent
from policies.effects import EffectBook, Report
from policies.registry import report_policies
from policies.units import from_millis
from policies.wire import EventReader


class ReportReader:
    """Folds records of the topic of reports.

    Args:
        knows: whether a cluster is of interest.
        policy: the only policy of interest; None: all are.
    """

    def __init__(self, knows: Callable[[str], bool], policy: str | None = None) -> None:
        self.book = EffectBook()
        self._knows = knows
        self._policies = report_policies()
        self._policy = policy
        self._reader: EventReader[ActuatorEvent] = EventReader(self._policies)
        self._reports: dict[bytes, Report] = {}
        """The last report of each record key."""

    def fold(self, record: Record) -> None:
        """Fold one record; a tombstone drops the report of its key.

        The keys of a cluster that is not watched any more are deleted one by one. If the cluster comes back, the
        deletions in one partition may be read after its new reports in another, so they must not drop those.

        Raises:
            BadRecordError: the record is no report.
        """
        key = record.key or b""
        if record.value is None:
            if (before := self._reports.pop(key, None)) is not None:
                self.book.drop(before)
            return
        event = self._reader.read(record.value)
        data, effect = event.data, event.data.effect()
        of_policy = self._policies[type(data)]
        if effect is None or not self._knows(data.cluster) or self._policy not in (None, of_policy):
            return
        at = min(event.time or from_millis(record.appended_ms), from_millis(record.appended_ms))
        self._reports[key] = Report(of_policy, data.cluster, data.subject(), at, effect)
        self.book.fold(self._reports[key])
