"""Reports the agent's actions: as readings for the loop, and in the log."""

from collections.abc import Callable

import structlog

from policies.observations import Reading
from policies.sessions.readings import Recovery, RecoveryAction, RecoveryResult, SessionState, ZkSession

ReadingSink = Callable[[Reading], None]

_log = structlog.get_logger(__name__)


class RecoveryReporter:
    """Reports for one member. A failed report does not stop the agent.

    Args:
        role: its fleet, as in the loop's session collector.
        report: publishes readings, such as `connectors.kafka.publisher.observations_to`; None: only the log.
    """

    def __init__(self, cluster: str, member: str, report: ReadingSink | None, *, role: str = "broker") -> None:
        self._cluster = cluster
        self._member = member
        self._role = role
        self._report = report

    def report_session(self, session: str, timeout_ms: int) -> None:
        """Report a new session. A collector sees it only when the member registers, which is after its bundles."""
        self._publish(
            ZkSession(
                cluster=self._cluster,
                member=self._member,
                role=self._role,
                session=session,
                state=SessionState.CONNECTED,
                timeout_ms=timeout_ms,
            )
        )

    def report_ok(self, action: RecoveryAction, path: str | None = None, *, attempt: int = 1) -> None:
        """Report an action that was done."""
        _log.info("recovery", member=self._member, action=action.value, path=path)
        self._send(action, path, attempt)

    def report_failure(self, action: RecoveryAction, detail: str, path: str | None = None, *, attempt: int) -> None:
        """Report an action that failed, and the number of attempts."""
        _log.warning(
            "recovery failed", member=self._member, action=action.value, path=path, attempt=attempt, detail=detail
        )
        self._send(action, path, attempt, detail[:200])

    def _send(self, action: RecoveryAction, path: str | None, attempt: int, failure: str | None = None) -> None:
        result = RecoveryResult.OK if failure is None else RecoveryResult.FAILED
        self._publish(
            Recovery(
                cluster=self._cluster,
                member=self._member,
                action=action,
                path=path,
                result=result,
                attempt=attempt,
                detail=failure,
            )
        )

    def _publish(self, reading: Reading) -> None:
        if self._report is None:
            return
        try:
            self._report(reading)
        except Exception as error:  # the application's own code
            _log.warning("a report failed", member=self._member, error=repr(error))
