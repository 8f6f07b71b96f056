"""The example scenario of sessions: a broker has lost its session and has a new one."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from policies.examples import ExampleReport, Examples, make_readings, minutes
from policies.observations import Outcome, Reading
from policies.sessions.readings import (
    NAMESPACES,
    BundleReOwned,
    BundleUnloaded,
    MemberHealth,
    OwnedNode,
    Ownership,
    Ownerships,
    Recovery,
    RecoveryAction,
    SessionState,
    UnloadOutcome,
    ZkSession,
)
from policies.sessions.settings import SessionsSettings

_CLUSTER = "messaging"


def examples() -> Examples:
    """The scenario for the references."""
    kinds: tuple[tuple[type[BundleUnloaded | BundleReOwned], str], ...] = (
        (BundleUnloaded, "b1:8080"),
        (BundleReOwned, "b2:8080"),
    )
    reports = tuple(
        ExampleReport(
            f"{kind.__name__}-1",
            minutes(3),
            kind(
                cluster=_CLUSTER,
                member="b1:8080",
                bundle="acme/orders/0x00000000_0x80000000",
                decision_id="5e0f2c1c-52f4-5a7b-8f0f-2e1b6a0f3d77",
                sequence=12,
                outcome=UnloadOutcome.DONE,
                served_by=(served_by,),
                attempt=1,
                done_at=minutes(3),
            ),
        )
        for kind, served_by in kinds
    )
    return Examples(
        settings=SessionsSettings(),
        batches=(make_readings("headgate/collector/zookeeper-sessions", *_readings()),),
        reports=reports,
        block={
            "wait_for_deletion": "30s",
            "shutdown_delay": "15s",
            "clusters": {"messaging": {"ownership_rules": "current"}},
        },
        cluster={
            "sessions": {"servers": ["zk-1:2181", "zk-2:2181", "zk-3:2181"], "admin_url": "http://{host}:8080"},
        },
    )


def _readings() -> Sequence[tuple[str, datetime, Reading]]:
    cluster, member = _CLUSTER, "b1:8080"
    bundles = [f"/namespace/acme/orders/{half}" for half in ("0x00000000_0x80000000", "0x80000000_0xffffffff")]

    def session(session_id: str, state: SessionState) -> ZkSession:
        return ZkSession(cluster=cluster, member=member, session=session_id, state=state, timeout_ms=30_000)

    def node(path: str, session_id: str, czxid: int) -> dict[str, Any]:
        return {"path": path, "owner_member": member, "session": session_id, "czxid": czxid, "version": 0}

    kept = OwnedNode(**node(bundles[1], "0x1000b", 52))
    health = MemberHealth(cluster=cluster, outcome=Outcome.OK, member=member, healthy=True, listed=True)
    reconnected = Recovery(cluster=cluster, member=member, action=RecoveryAction.RECONNECT, attempt=2)
    return (
        ("session-0", minutes(0), session("0x1000a", SessionState.CONNECTED)),
        ("bundle-0", minutes(0), Ownership(cluster=cluster, **node(bundles[0], "0x1000a", 17))),
        (
            "bundles-0",
            minutes(0),
            Ownerships(
                cluster=cluster,
                tree=NAMESPACES,
                nodes=tuple(OwnedNode(**node(path, "0x1000a", 17)) for path in bundles),
            ),
        ),
        ("session-1", minutes(1), session("0x1000a", SessionState.EXPIRED)),
        ("recovery-1", minutes(1), reconnected),
        ("session-2", minutes(2), session("0x1000b", SessionState.CONNECTED)),
        ("bundles-2", minutes(2), Ownerships(cluster=cluster, tree=NAMESPACES, nodes=(kept,))),
        ("health-2", minutes(2), health),
    )
