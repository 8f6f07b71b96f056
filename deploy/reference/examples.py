"""One real event of each type: what the code itself makes of a tiny scenario."""

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from deploy.reference import switch_examples
from policies.decisions import Mode
from policies.isolation import BookieAffinity, BookieRacks, Bookies, IsolationSettings
from policies.isolation.decisions import QUARANTINE_GROUP
from policies.isolation.quarantine_events import BookieQuarantined, QuarantineOutcome
from policies.isolation.readings import NamespaceAffinity, RackInfo, Registration
from policies.observations import Observation, Outcome, Reading
from policies.registry import APPLIED_QUOTAS, AUDIT, topic_of
from policies.sessions import MemberHealth, Ownership, Ownerships, Recovery, SessionsSettings, ZkSession
from policies.sessions.readings import NAMESPACES, OwnedNode, RecoveryAction, SessionState
from policies.sessions.unload_events import BundleReOwned, BundleUnloaded, UnloadOutcome
from policies.settings import PolicySettings
from policies.switching import SwitchingSettings
from policies.throttle import KafkaCluster, LogDirs, ThrottleSettings
from policies.throttle.quota_events import (
    AppliedQuota,
    QuotaApplication,
    QuotaOutcome,
)
from policies.throttle.quota_orders import QuotaOrder, wanted_of
from policies.throttle.quota_plan import QuotaSituation, plan
from policies.throttle.quota_settings import DEFAULT, Entity
from policies.throttle.readings import BrokerMember, VolumeReading
from policies.units import to_millis
from policies.wire import BadRecordError, actuator_event, observation_event
from streaming.dead_letters import Record, dead_letter
from streaming.host import PolicyHost, outputs, reading_reader

_START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
_GIGABYTE = 10**9
_CLUSTER = "payments"
_BOOKIES_CLUSTER = "messaging"


class Example(NamedTuple):
    """A record as it would lie in Kafka."""

    topic: str
    """Without its prefix."""
    key: str
    event: dict[str, Any]


def examples() -> dict[str, Example]:
    """By event type: the first of each that the scenario gives."""
    found: dict[str, Example] = {}
    for example in (*_observed(), *_decided(), *_acted(), _buried()):
        found.setdefault(example.event["type"], example)
    return found


def _readings() -> Sequence[tuple[str, datetime, Reading]]:
    """Three brokers; a volume of the last fills by a tenth of a gigabyte a minute. What the pages show stands first."""
    members = tuple(BrokerMember(broker=broker, rack=rack) for broker, rack in ((1, "a"), (2, "b"), (3, "c")))
    filling = [(f"reading-{minute}", _at(minute), _log_dirs(3, 4.3 - minute / 10)) for minute in range(4)]
    return (
        ("members-3", _at(3), KafkaCluster(cluster=_CLUSTER, outcome=Outcome.OK, brokers=members)),
        *reversed(filling),
        *((f"roomy-{broker}", _at(3), _log_dirs(broker, 60)) for broker in (1, 2)),
    )


def _at(minutes: int) -> datetime:
    return _START + timedelta(minutes=minutes)


def _log_dirs(broker: int, usable_gigabytes: float) -> LogDirs:
    usable_bytes = round(usable_gigabytes * _GIGABYTE)
    volume = VolumeReading(log_dir="/data/a", total_bytes=100 * _GIGABYTE, usable_bytes=usable_bytes)
    return LogDirs(cluster=_CLUSTER, outcome=Outcome.OK, broker=broker, volumes=(volume,))


def _isolation_readings() -> Sequence[tuple[str, datetime, Reading]]:
    """One of two bookies of a group is gone, and a bookie that nobody assigned has joined."""
    registered = [("bk1:3181", "0x1000a", 14, 0), ("bk3:3181", "0x1000c", 18, 0), ("bk11:3181", "0x1001f", 97, 2)]
    bookies = Bookies(
        cluster=_BOOKIES_CLUSTER,
        outcome=Outcome.OK,
        writable=tuple(
            Registration(bookie=bookie, session=session, czxid=czxid, registered_at=_at(minute))
            for bookie, session, czxid, minute in registered
        ),
        known=("bk1:3181", "bk11:3181", "bk2:3181", "bk3:3181"),
    )
    members = {"default": ("bk1:3181", "bk2:3181"), "shared": ("bk3:3181",)}
    groups = {group: {b: RackInfo(rack="/r1", hostname=b) for b in bookies_} for group, bookies_ in members.items()}
    affinity = {
        "acme/orders": NamespaceAffinity(primary=("default",), ensemble_size=2, write_quorum=2, ack_quorum=2),
        "acme/events": NamespaceAffinity(primary=("shared",), ensemble_size=1, write_quorum=1, ack_quorum=1),
    }
    return (
        ("bookies-3", _at(3), bookies),
        ("racks-3", _at(3), BookieRacks(cluster=_BOOKIES_CLUSTER, outcome=Outcome.OK, groups=groups)),
        ("affinity-3", _at(3), BookieAffinity(cluster=_BOOKIES_CLUSTER, outcome=Outcome.OK, namespaces=affinity)),
    )


def _session_readings() -> Sequence[tuple[str, datetime, Reading]]:
    """A broker whose session expired has a new one; of its bundles one has gone with the old session."""
    cluster, member = _BOOKIES_CLUSTER, "b1:8080"
    bundles = [f"/namespace/acme/orders/{half}" for half in ("0x00000000_0x80000000", "0x80000000_0xffffffff")]

    def session(session_id: str, state: SessionState) -> ZkSession:
        return ZkSession(cluster=cluster, member=member, session=session_id, state=state, timeout_ms=30_000)

    def node(path: str, session_id: str, czxid: int) -> dict[str, Any]:
        return {"path": path, "owner_member": member, "session": session_id, "czxid": czxid, "version": 0}

    kept = OwnedNode(**node(bundles[1], "0x1000b", 52))
    health = MemberHealth(cluster=cluster, outcome=Outcome.OK, member=member, healthy=True, listed=True)
    reconnected = Recovery(cluster=cluster, member=member, action=RecoveryAction.RECONNECT, attempt=2)
    return (
        ("session-0", _at(0), session("0x1000a", SessionState.CONNECTED)),
        ("bundle-0", _at(0), Ownership(cluster=cluster, **node(bundles[0], "0x1000a", 17))),
        (
            "bundles-0",
            _at(0),
            Ownerships(
                cluster=cluster,
                tree=NAMESPACES,
                nodes=tuple(OwnedNode(**node(path, "0x1000a", 17)) for path in bundles),
            ),
        ),
        ("session-1", _at(1), session("0x1000a", SessionState.EXPIRED)),
        ("recovery-1", _at(1), reconnected),
        ("session-2", _at(2), session("0x1000b", SessionState.CONNECTED)),
        ("bundles-2", _at(2), Ownerships(cluster=cluster, tree=NAMESPACES, nodes=(kept,))),
        ("health-2", _at(2), health),
    )


def _observed() -> Iterator[Example]:
    for source, readings in (
        ("headgate/collector/kafka", _readings()),
        ("headgate/collector/zookeeper", _isolation_readings()),
        ("headgate/collector/zookeeper-sessions", _session_readings()),
    ):
        for id_, time, reading in readings:
            yield _example(reading, id_, source, time)
    for said in (*itertools.chain(*switch_examples.steps(_START)), *switch_examples.answers(_START)):
        yield _example(said.reading, said.id, said.source, said.time)


def _example(reading: Reading, id_: str, source: str, time: datetime) -> Example:
    event = observation_event(reading, id=id_, source=source, time=time)
    return Example(topic_of(type(reading)), reading.cluster, json.loads(event))


def _decided() -> Iterator[Example]:
    limits = {"soft": {"available_bytes_below": "5GB"}, "hard": {"available_bytes_below": "1GB"}}
    yield from _decided_by("throttle", ThrottleSettings.model_validate(limits), _readings())
    at_once = IsolationSettings.model_validate({"grace": "0s", "quarantine": "on"})
    yield from _decided_by("isolation", at_once, _isolation_readings())
    yield from _decided_by("sessions", SessionsSettings(), _session_readings())
    batches = ([(said.id, said.time, said.reading) for said in step] for step in switch_examples.steps(_START))
    switched = _decided_by("switching", SwitchingSettings(), *batches)
    # An order about a ledger has more to show than one about the switch, the last record more than the first.
    latest_first = reversed(list(switched))
    yield from sorted(latest_first, key=lambda example: example.event["data"].get("ledger") is None)


def _decided_by(
    policy: str, settings: PolicySettings, *batches: Sequence[tuple[str, datetime, Reading]]
) -> Iterator[Example]:
    host, kept = PolicyHost({policy: settings}), None
    for readings in batches:
        observations = [Observation(id_, time, reading) for id_, time, reading in readings]
        cluster, now = observations[0].reading.cluster, max(o.at for o in observations)
        kept, step = host.step(policy, cluster, kept, observations, now)
        for topic, key, value in outputs(step):
            yield Example(topic, key, json.loads(value))


def _acted() -> Iterator[Example]:
    yield from _quotas_set()
    yield _bookie_quarantined()
    yield from _bundles_moved()


def _bookie_quarantined() -> Example:
    said = BookieQuarantined(
        cluster=_BOOKIES_CLUSTER,
        bookie="bk11:3181",
        group=QUARANTINE_GROUP,
        decision_id="0d9a7cbb-5d5c-5f35-9f0c-6f4b1f6f2a51",
        sequence=7,
        outcome=QuarantineOutcome.DONE,
        leak_window_seconds=0.412,
        quarantined_at=_at(3),
        attempt=1,
    )
    return Example(AUDIT, _BOOKIES_CLUSTER, json.loads(actuator_event(said, id="quarantine-1", at=_at(3))))


def _bundles_moved() -> Iterator[Example]:
    kinds: tuple[tuple[type[BundleUnloaded | BundleReOwned], tuple[str, ...]], ...] = (
        (BundleUnloaded, ("b1:8080",)),
        (BundleReOwned, ("b2:8080",)),
    )
    for kind, served_by in kinds:
        said = kind(
            cluster=_BOOKIES_CLUSTER,
            member="b1:8080",
            bundle="acme/orders/0x00000000_0x80000000",
            decision_id="5e0f2c1c-52f4-5a7b-8f0f-2e1b6a0f3d77",
            sequence=12,
            outcome=UnloadOutcome.DONE,
            served_by=served_by,
            attempt=1,
            done_at=_at(3),
        )
        event = actuator_event(said, id=f"{kind.__name__}-1", at=_at(3))
        yield Example(AUDIT, _BOOKIES_CLUSTER, json.loads(event))


def _quotas_set() -> Iterator[Example]:
    entity, at = Entity(client_id=DEFAULT), _at(3)
    decision_id, until = "4be51c4a-2a3c-5c7e-9b0e-0d3a5a1d9b10", at + timedelta(minutes=3)
    order = QuotaOrder(_CLUSTER, decision_id, 4, 0.75, Mode.ACTIVE, until)
    wanted = wanted_of(order, at, fallback_factor=1.0)
    planned = plan(QuotaSituation(wanted, record=None, found=None, base=10_000_000, floor=65_536))
    said = QuotaApplication(
        cluster=_CLUSTER,
        entity=str(entity),
        decision_id=order.decision_id,
        sequence=order.sequence,
        factor=wanted.factor,
        verdict=planned.verdict,
        reason=planned.reason,
        rate_bytes_per_second=planned.rate,
        previous_bytes_per_second=planned.found,
        outcome=QuotaOutcome.APPLIED,
        attempt=1,
    )
    yield Example(AUDIT, _CLUSTER, json.loads(actuator_event(said, id="application-1", at=at)))
    assert planned.record is not None  # noqa: S101 - what is set is remembered
    note = AppliedQuota.of(_CLUSTER, entity, planned.record, order)
    yield Example(APPLIED_QUOTAS, note.subject(), json.loads(actuator_event(note, id="note-1", at=at)))


def _buried() -> Example:
    record = Record("headgate.observed.log-dirs", 0, 42, to_millis(_START), b'{"specversion":"1.0","id":"x"')
    try:
        reading_reader().read(record.value or b"")
    except BadRecordError as error:
        topic, key, value = dead_letter(record, error)
        return Example(topic, key, json.loads(value))
    raise AssertionError("a record cut short can be read")
