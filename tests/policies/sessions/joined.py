"""Facts from readings, for tests of the stages after the fold."""

from typing import Any

from policies.decisions import Issuer, Mode
from policies.observations import Observation
from policies.sessions import SessionsSettings, SessionsState
from policies.sessions.facts import Facts, join_facts
from policies.sessions.fold import ClusterState
from policies.sessions.judge import judge
from policies.sessions.policy import DecisionPublisher, apply_step
from policies.units import to_millis
from tests.policies.sessions.course import CLUSTER, at, session

ISSUER = Issuer("sessions", CLUSTER, Mode.ACTIVE, "hash")


def joined(*readings: Observation, until: float, state: SessionsState | None = None, **block: Any) -> Facts:
    """The facts at `until`, after these readings."""
    settings, now_ms = SessionsSettings.model_validate(block), to_millis(at(until))
    cluster = ClusterState(state or SessionsState(), settings)
    cluster.fold(readings, now_ms)
    return join_facts(cluster, state.spent if state else (), settings, now_ms)


def published(found: Facts) -> DecisionPublisher:
    """The decisions that are published for these facts."""
    return DecisionPublisher(ISSUER, found, 0).emit(judge(found)[0])


def after(found: Facts) -> Facts:
    """The facts that remain after a step with these facts."""
    return apply_step(found, *judge(found), published(found))


def connected(*members: str, seconds: float = 0, **more: Any) -> list[Observation]:
    return [session(seconds, m, "connected", f"0x{m}", **more) for m in members]


def expired(*members: str, seconds: float, **more: Any) -> list[Observation]:
    return [session(seconds, m, "expired", f"0x{m}", **more) for m in members]
