"""What the agent does, said: as readings for the loop, and in the log."""

from collections.abc import Callable

import structlog

from policies.sessions.readings import Recovery, RecoveryAction, RecoveryResult

Report = Callable[[Recovery], None]

_log = structlog.get_logger(__name__)


class Reports:
    """Reports of one member. Whatever becomes of a report, the agent goes on.

    Args:
        cluster: its name in the loop's settings.
        member: who reports.
        report: where reports go, such as `connectors.kafka.publisher.observations_to`; null: only to the log.
    """

    def __init__(self, cluster: str, member: str, report: Report | None) -> None:
        self._cluster = cluster
        self._member = member
        self._report = report

    def ok(self, action: RecoveryAction, path: str | None = None, *, attempt: int = 1) -> None:
        """Something was done."""
        _log.info("recovery", member=self._member, action=action.value, path=path)
        self._send(action, path, RecoveryResult.OK, attempt, None)

    def failed(self, action: RecoveryAction, detail: str, path: str | None = None, *, attempt: int) -> None:
        """Something could not be done, in so many attempts."""
        _log.warning(
            "recovery failed", member=self._member, action=action.value, path=path, attempt=attempt, detail=detail
        )
        self._send(action, path, RecoveryResult.FAILED, attempt, detail)

    def _send(
        self, action: RecoveryAction, path: str | None, result: RecoveryResult, attempt: int, detail: str | None
    ) -> None:
        if self._report is None:
            return
        said = Recovery(
            cluster=self._cluster,
            member=self._member,
            action=action,
            path=path,
            result=result,
            attempt=attempt,
            detail=None if detail is None else detail[:200],
        )
        try:
            self._report(said)
        except Exception as error:  # the application's own code
            _log.warning("a report could not be made", member=self._member, error=repr(error))
