"""What the actuator did, said once: as an event for the audit, a line in the log, and a count."""

import uuid
from collections.abc import Callable
from datetime import datetime

import structlog

from connectors.quarantine.guards import Finding
from connectors.quarantine.metrics import QuarantineMetrics
from policies.isolation.decision import BookieQuarantine
from policies.isolation.quarantine_events import BookieQuarantined, QuarantineOutcome
from policies.wire import actuator_event

_log = structlog.get_logger(__name__)

_SAY = {QuarantineOutcome.FAILED: _log.error, QuarantineOutcome.TOO_MANY: _log.warning}


class Reports:
    """Says what became of one cluster's decisions; what was said last of a bookie is not said again.

    Args:
        cluster: its name.
        publish: hands an event (key, value) over for the audit.
        metrics: where it is counted.
    """

    def __init__(self, cluster: str, publish: Callable[[str, bytes], None], metrics: QuarantineMetrics) -> None:
        self._cluster = cluster
        self._publish = publish
        self._metrics = metrics
        self._said: dict[str, tuple[object, ...]] = {}

    def found(self, decision: BookieQuarantine, finding: Finding, *, attempt: int, at: datetime) -> None:
        """One decision was dealt with, or could not be in so many attempts."""
        is_done = finding.outcome is QuarantineOutcome.DONE
        # To find it where we have put it is no news: a decision is repeated while it holds.
        group = decision.group if is_done else finding.found_group
        news = ("in", group) if group is not None else (finding.outcome, finding.detail)
        if is_done or self._said.get(decision.bookie) != news:
            self._said[decision.bookie] = news
            self._say(decision, finding, attempt, at)

    def superseded(self, decision: BookieQuarantine, in_force: BookieQuarantine, at: datetime) -> None:
        """A decision is not carried out (any further), as one with a higher sequence is in force."""
        detail = f"sequence {in_force.sequence} is in force: {in_force.verdict}"
        self._say(decision, Finding(QuarantineOutcome.SUPERSEDED, detail), 1, at)

    def _say(self, decision: BookieQuarantine, finding: Finding, attempt: int, at: datetime) -> None:
        said = BookieQuarantined(
            cluster=self._cluster,
            bookie=decision.bookie,
            group=decision.group,
            found_group=finding.found_group,
            decision_id=decision.decision_id,
            sequence=decision.sequence,
            outcome=finding.outcome,
            leak_window_seconds=finding.leak_window_seconds,
            quarantined_at=finding.quarantined_at,
            attempt=attempt,
            detail=finding.detail,
        )
        self._metrics.counts(self._cluster, finding.outcome)
        if finding.leak_window_seconds is not None:
            self._metrics.leaked(self._cluster, finding.leak_window_seconds)
        say = _SAY.get(finding.outcome, _log.info)
        say(
            f"quarantine {finding.outcome.value}",
            **said.model_dump(mode="json", exclude={"outcome"}, exclude_none=True),
        )
        self._publish(self._cluster, actuator_event(said, id=str(uuid.uuid4()), at=at))
