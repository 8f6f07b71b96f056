"""Decides what to do after a session was lost: by the policy's rules applied locally, or by the loop's decisions."""

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
    """A member is without a session."""

    cluster: str
    member: str
    role: str
    session: str | None
    """The one it lost."""
    timeout_ms: int
    lost_seconds: float
    """Since it lost it."""
    attempts: int
    """Failed attempts to get another since, one for each T."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class RecoveryStrategy(Protocol):
    """What the agent asks. It is asked from the agent's own thread only, and must not block."""

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; call `wake`, from any thread, whenever an answer may have changed."""

    def close(self) -> None:
        """End."""

    def ruling(self, path: str, claimant: Claimant, node: NodeNow | None) -> BundleRuling:
        """What is to be done about one bundle, as its node is now; None: it could not be read."""

    def plan(self, session: str) -> tuple[RecoveryStep, ...]:
        """In which order a member with this new session comes back."""

    def shutdown(self, session: str | None, outage: Outage | None) -> SessionDecision | None:
        """Why the process with this session should go down, if it should; the same decision at most once.

        Args:
            session: the one it has, or had last.
            outage: what is known of its loss; None while it has a session.
        """


class LocalStrategy:
    """The rules of the sessions policy, applied here: no loop is needed.

    Whether a loss concerns one member or the whole fleet cannot be told from one member. So it orders a shutdown only
    with `on_session_lost: shutdown`, and only after `reconnect_limit` failed attempts in a row; else never.

    Args:
        settings: `ownership_rules`, `recovery_order`, `on_session_lost`, `reconnect_limit` and `validity` count.
        clock: the time, with its zone.
    """

    def __init__(self, settings: SessionsSettings | None = None, *, clock: Callable[[], datetime] = _utc_now) -> None:
        self._settings = settings or SessionsSettings()
        self._clock = clock
        self._told: str | None = None
        """The lost session for which a shutdown was ordered."""

    def start(self, wake: Callable[[], None]) -> None:
        """There is nothing new to wait for."""

    def close(self) -> None:
        """There is nothing to end."""

    def ruling(self, path: str, claimant: Claimant, node: NodeNow | None) -> BundleRuling:  # noqa: ARG002 - the protocol's
        """By the table of the rules."""
        return rule(claimant, node, self._settings.ownership_rules)

    def plan(self, session: str) -> tuple[RecoveryStep, ...]:  # noqa: ARG002 - the protocol's
        """Always the same."""
        return self._settings.recovery_order

    def shutdown(self, session: str | None, outage: Outage | None) -> SessionDecision | None:  # noqa: ARG002 - the protocol's
        """After enough failed attempts, once for each loss, where the settings say so."""
        if outage is None or self._settings.on_session_lost is not OnSessionLost.SHUTDOWN:
            return None
        lost = outage.session or ""
        if outage.attempts < self._settings.reconnect_limit or self._told == lost:
            return None
        self._told = lost
        return _given_up(outage, self._settings, self._clock())


def _given_up(outage: Outage, settings: SessionsSettings, now: datetime) -> SessionDecision:
    """The decision that the loop would have published."""
    issuer = Issuer(NAME, outage.cluster, Mode.ACTIVE, settings.fingerprint())
    subject = f"{outage.cluster}/{outage.member}"
    lost_for = human_seconds(outage.lost_seconds)
    return SessionDecision(
        **issuer.header(subject, to_millis(now), now, about=("session", subject)),
        verdict=SessionVerdict.SHUTDOWN,
        reason=SessionReason.RECONNECT_EXHAUSTED,
        explanation=f"{outage.role.capitalize()} {outage.member} has not reconnected in {lost_for} and "
        f"{counted(outage.attempts, 'failed attempt')}: it is to shut down.",
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
