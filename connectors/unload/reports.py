"""What the actuator did, said once: as an event for the audit, a line in the log, and a count."""

import uuid
from collections.abc import Callable
from datetime import datetime

import structlog

from connectors.unload.guards import Finding
from connectors.unload.metrics import UnloadMetrics
from policies.sessions.decision import OwnershipDecision, OwnershipVerdict
from policies.sessions.unload_events import BundleReOwned, BundleUnloaded, UnloadOutcome
from policies.wire import actuator_event

_log = structlog.get_logger(__name__)

_SAY = {UnloadOutcome.FAILED: _log.error, UnloadOutcome.CONTESTED: _log.warning}


class Reports:
    """Says what became of one cluster's decisions; what was said last of one is not said again.

    Args:
        cluster: its name.
        publish: hands an event (key, value) over for the audit.
        metrics: where it is counted.
    """

    def __init__(self, cluster: str, publish: Callable[[str, bytes], None], metrics: UnloadMetrics) -> None:
        self._cluster = cluster
        self._publish = publish
        self._metrics = metrics
        self._said: dict[str, tuple[str, Finding]] = {}

    def found(self, decision: OwnershipDecision, finding: Finding, *, attempt: int, at: datetime) -> None:
        """One decision was dealt with, or could not be in so many attempts."""
        news = (decision.decision_id, finding)
        if self._said.get(decision.subject) != news:
            self._said[decision.subject] = news
            self._say(decision, finding, attempt, at)

    def superseded(self, decision: OwnershipDecision, in_force: OwnershipDecision, at: datetime) -> None:
        """A decision is not carried out (any further), as one with a higher sequence is in force."""
        detail = f"sequence {in_force.sequence} is in force: {in_force.verdict}"
        self._say(decision, Finding(UnloadOutcome.SUPERSEDED, detail), 1, at)

    def _say(self, decision: OwnershipDecision, finding: Finding, attempt: int, at: datetime) -> None:
        kind = BundleUnloaded if decision.verdict is OwnershipVerdict.UNLOAD else BundleReOwned
        said = kind(
            cluster=self._cluster,
            member=decision.member,
            bundle=decision.bundle,
            decision_id=decision.decision_id,
            sequence=decision.sequence,
            outcome=finding.outcome,
            served_by=finding.served_by,
            attempt=attempt,
            done_at=at if finding.outcome is UnloadOutcome.DONE else None,
            detail=finding.detail,
        )
        self._metrics.counts(self._cluster, decision.verdict, finding.outcome)
        say = _SAY.get(finding.outcome, _log.info)
        say(
            f"{decision.verdict.value} {finding.outcome.value}",
            **said.model_dump(mode="json", exclude={"outcome"}, exclude_none=True),
        )
        self._publish(self._cluster, actuator_event(said, id=str(uuid.uuid4()), at=at))
