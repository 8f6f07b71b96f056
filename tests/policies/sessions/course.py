"""Readings at seconds after a fixed start, and a run of the sessions policy over them as replay would do it."""

from typing import Any

from policies.decisions import AlertStatus
from policies.observations import Observation, Reading
from policies.sessions import (
    MemberHealth,
    Ownership,
    OwnershipDecision,
    Ownerships,
    Recovery,
    SessionDecision,
    SessionsSettings,
    SessionsState,
    ZkSession,
)
from policies.sessions.policy import SessionsPolicy
from tests.policies.virtual_run import START as START
from tests.policies.virtual_run import VirtualRun, second_of
from tests.policies.virtual_run import at as at

CLUSTER = "messaging"
BUNDLE = "/namespace/t/ns/0x00000000_0x40000000"


def _seen(seconds: float, name: str, reading: Reading) -> Observation:
    return Observation(f"{name}@{seconds:g}", at(seconds), reading)


def session(
    seconds: float, member: str | None, state: str | None, session: str | None = None, **more: Any
) -> Observation:
    """A reading of a session, with a timeout of 30 s by default."""
    more = {"timeout_ms": 30_000, **more}
    named = {"cluster": CLUSTER, "member": member, "state": state, "session": session}
    reading = ZkSession.model_validate({**named, **more})
    return _seen(seconds, f"session-{member}-{state}-{session}", reading)


def unread(seconds: float, member: str | None = None, outcome: str = "timeout") -> Observation:
    return session(seconds, member, None, outcome=outcome)


def node(owner: str | None, session_id: str | None, path: str = BUNDLE, **more: Any) -> dict[str, Any]:
    return {"path": path, "owner_member": owner, "session": session_id, "version": 0, **more}


def owned(seconds: float, owner: str | None, session_id: str | None, path: str = BUNDLE, **more: Any) -> Observation:
    reading = Ownership.model_validate({"cluster": CLUSTER, **node(owner, session_id, path, **more)})
    return _seen(seconds, f"owned-{path}-{owner}-{session_id}", reading)


def absent(seconds: float, path: str = BUNDLE) -> Observation:
    reading = Ownership.model_validate({"cluster": CLUSTER, "path": path, "exists": False})
    return _seen(seconds, f"absent-{path}", reading)


def registered(seconds: float, member: str, session_id: str) -> Observation:
    return owned(seconds, member, session_id, f"/loadbalance/brokers/{member}")


def unregistered(seconds: float, member: str) -> Observation:
    return absent(seconds, f"/loadbalance/brokers/{member}")


def tree(seconds: float, *nodes: dict[str, Any], name: str = "/namespace", outcome: str = "ok") -> Observation:
    reading = Ownerships.model_validate({"cluster": CLUSTER, "tree": name, "nodes": nodes, "outcome": outcome})
    return _seen(seconds, f"tree-{name}", reading)


def health(seconds: float, member: str, outcome: str = "ok", **more: Any) -> Observation:
    more = {"healthy": True if outcome == "ok" else None, **more}
    reading = MemberHealth.model_validate({"cluster": CLUSTER, "member": member, "outcome": outcome, **more})
    return _seen(seconds, f"health-{member}", reading)


def recovery(seconds: float, member: str, action: str, result: str = "ok", **more: Any) -> Observation:
    named = {"cluster": CLUSTER, "member": member, "action": action, "result": result}
    reading = Recovery.model_validate({**named, **more})
    return _seen(seconds, f"recovery-{member}-{action}-{result}", reading)


class Run(VirtualRun[SessionsState]):
    """Steps the policy at each reading, and at each `wake_at` in between."""

    def __init__(self, state: SessionsState | None = None, **settings: Any) -> None:
        self.settings = SessionsSettings.model_validate(settings)
        super().__init__(SessionsPolicy(CLUSTER, self.settings), state)

    def see(self, *observations: Observation, seconds: float | None = None) -> "Run":
        """Step with each observation on its own."""
        return self.feed(observations)

    def reload(self, **settings: Any) -> "Run":
        self.settings = SessionsSettings.model_validate(settings)
        self.policy = SessionsPolicy(CLUSTER, self.settings)
        return self

    @property
    def sessions(self) -> list[SessionDecision]:
        return [d for d in self.published if isinstance(d, SessionDecision)]

    @property
    def bundles(self) -> list[OwnershipDecision]:
        return [d for d in self.published if isinstance(d, OwnershipDecision)]

    def told(self, member: str) -> list[tuple[float, str]]:
        """(second, "verdict reason") of every decision on one member."""
        return [(second_of(d), f"{d.verdict} {d.reason}") for d in self.sessions if d.member == member]

    def ruled(self, member: str, path: str = BUNDLE) -> list[tuple[float, str]]:
        """(second, "verdict reason") of every decision on one bundle of a member."""
        return [(second_of(d), f"{d.verdict} {d.reason}") for d in self.bundles if (d.member, d.path) == (member, path)]

    def said(self, alert: str) -> list[tuple[float, str, str]]:
        """(second, subject, status) of every record of one alert."""
        named = (a for a in self.alerts if a.alert == alert)
        return [(second_of(a), a.subject.removeprefix(f"{CLUSTER}/"), a.status.value) for a in named]

    def firing(self) -> set[tuple[str, str]]:
        """(alert, subject) of the alerts that fire now."""
        latest = {(a.alert, a.subject.removeprefix(f"{CLUSTER}/")): a.status for a in self.alerts}
        return {key for key, status in latest.items() if status is AlertStatus.FIRING}
