"""Decides the recovery after the loss of a session: the interface, and the policy's rules applied locally."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from policies.decisions import Issuer, Mode
from policies.sessions.decisions import SessionDecision, SessionReason, SessionStatus, SessionVerdict
from policies.sessions.emit import NAME
from policies.sessions.judge.ownership_table import BundleRuling, Claimant, NodeNow, rule
from policies.sessions.settings import OnSessionLost, RecoveryStep, SessionsSettings
from policies.succession import ends_at
from policies.units import counted, human_seconds, to_millis


@dataclass(frozen=True, slots=True)
class Outage:
    """The loss of a member's session, while it has no new one."""

    cluster: str
    member: str
    role: str
    session: str | None
    """The lost session."""
    timeout_ms: int
    lost_seconds: float
    """Time since the loss."""
    attempts: int
    """Failed attempts to get a new session, one for each T."""


class RecoveryStrategy(Protocol):
    """Decides for the agent. The agent calls it from its own thread only, and it must not block."""

    def start(self, wake: Callable[[], None]) -> None:
        """Start; call `wake`, from any thread, when a decision may have changed."""

    def close(self) -> None:
        """Stop."""

    def ruling(self, path: str, claimant: Claimant, node: NodeNow | None) -> BundleRuling:
        """Decide about one bundle by the present state of its node; None: it could not be read."""

    def plan(self, session: str) -> tuple[RecoveryStep, ...]:
        """Return the order of the recovery steps of a member with this new session."""

    def shutdown(self, session: str | None, outage: Outage | None) -> SessionDecision | None:
        """Return a decision to shut down the process with this session; the same decision at most once.

        Args:
            session: the present or last session.
            outage: None while it has a session.
        """


class LocalStrategy:
    """Applies the rules of the sessions policy locally, without the loop.

    One member cannot distinguish its own loss from one of the whole fleet. So this strategy decides a shutdown only
    with `on_session_lost: shutdown`, and only after `reconnect_limit` failed attempts in a row.

    Args:
        settings: it uses `ownership_rules`, `recovery_order`, `on_session_lost`, `reconnect_limit` and `validity`.
    """

    def __init__(
        self, settings: SessionsSettings | None = None, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._settings = settings or SessionsSettings()
        self._clock = clock
        self._shut_down: str | None = None
        """The lost session for which a shutdown was decided."""

    def start(self, wake: Callable[[], None]) -> None:
        """Do nothing: decisions do not change."""

    def close(self) -> None:
        """Do nothing."""

    def ruling(self, path: str, claimant: Claimant, node: NodeNow | None) -> BundleRuling:  # noqa: ARG002 - the protocol's
        """Apply the ownership table."""
        return rule(claimant, node, self._settings.ownership_rules)

    def plan(self, session: str) -> tuple[RecoveryStep, ...]:  # noqa: ARG002 - the protocol's
        """Return the configured order."""
        return self._settings.recovery_order

    def shutdown(self, session: str | None, outage: Outage | None) -> SessionDecision | None:  # noqa: ARG002 - the protocol's
        """Return a decision once for each loss, after enough failed attempts, if the settings allow it."""
        if outage is None or self._settings.on_session_lost is not OnSessionLost.SHUTDOWN:
            return None
        if outage.attempts < self._settings.reconnect_limit:
            self._shut_down = None  # the same session may be lost again
            return None
        lost = outage.session or ""
        if self._shut_down == lost:
            return None
        self._shut_down = lost
        return _decide_shutdown(outage, self._settings, self._clock())


def _decide_shutdown(outage: Outage, settings: SessionsSettings, now: datetime) -> SessionDecision:
    """Make the decision that the loop would have published."""
    issuer = Issuer(NAME, outage.cluster, Mode.ACTIVE, settings.fingerprint())
    subject = f"{outage.cluster}/{outage.member}"
    lost_for = human_seconds(outage.lost_seconds)
    return SessionDecision(
        **issuer.header(subject, to_millis(now), now, about=("session", subject)),
        verdict=SessionVerdict.SHUTDOWN,
        reason=SessionReason.RECONNECT_EXHAUSTED,
        explanation=f"{outage.role.capitalize()} {outage.member} has not reconnected in {lost_for} and "
        f"{counted(outage.attempts, 'failed attempt')}: shut it down.",
        evidence=(),
        numbers={},
        member=outage.member,
        role=outage.role,
        status=SessionStatus.SESSION_LOST,
        events=(),
        session=outage.session,
        timeout_ms=outage.timeout_ms,
        seconds_left=None,
        plan=(),
        bundle_count=0,
        bundles=(),
        losses=1,
        attempts=outage.attempts,
        recovery_seconds=None,
        valid_until=ends_at(now, settings.validity),
    )
