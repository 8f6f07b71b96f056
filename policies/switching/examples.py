"""The example scenario of switching: brokers have moved to another BookKeeper cluster, and copying begins."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from policies.examples import START, ExampleReading, Examples
from policies.observations import Outcome, Reading
from policies.switching.ledgers import Layout, LedgerKind, LedgerState
from policies.switching.readings import (
    CommandArgs,
    CommandName,
    GeneratorReading,
    LedgerOutcome,
    LedgerReading,
    ReferenceReading,
    RegisteredCluster,
    StatusAction,
    SwitchBroker,
    SwitchBrokers,
    SwitchCluster,
    SwitchCommand,
    SwitchInventory,
    SwitchInventoryPart,
    SwitchLease,
    SwitchLedger,
    SwitchPrecheck,
    SwitchRegistry,
    SwitchStatus,
)
from policies.switching.settings import SwitchingSettings
from policies.switching.state import ClusterStatus

_CLUSTER = "messaging"
_READ: dict[str, Any] = {"cluster": _CLUSTER, "outcome": Outcome.OK}
_BROKERS = ("b1:8080", "b2:8080")
_INSTANCES = {"old": "6f0b3a52-1f0e-4b53-9a50-0b1f6e9a7a11", "new": "c1a7e9d4-58f2-4e0c-8d0a-7b9d2f4e6a10"}
_DIGEST = "9f2c4e1a7b60d835c4f19e02ab7d6358e1c07f4b92d5a8630e7bc1f4d2a95e18"
_TEN_MINUTES_MS = 600_000
_SOURCES: Mapping[type[Reading], str] = {SwitchCommand: "headgate/switch", SwitchBroker: "headgate/agent"}
_TARGET = 1 << 32
"""The first id of the target, which was advanced beyond all ids of the source."""


def examples() -> Examples:
    """Return the scenario's batches, up to the first orders to copy."""
    moments = (_make_known(), _started(), _acked(), _clusters(), _listed())
    return Examples(
        settings=SwitchingSettings(),
        batches=tuple(tuple(_published(readings, second)) for second, readings in enumerate(moments)),
        later=tuple(_answers()),
        block={
            "strategies": {"schema": "remap"},
            "clusters": {"messaging": {"target_policy": "shared", "cleanup_after": "30d"}},
        },
        cluster={
            "bookkeeper": {
                "clusters": {"old": {}, "new": {"zookeeper": {"servers": "zk-9:2181"}}},
                "bootstrap": "old",
                "active": "old",
            },
            "switching": {"replication": {"ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2}},
        },
        # The order about a ledger and the last record show the most fields.
        rank=lambda decision: int(decision.get("ledger") is None),
        is_latest_shown=True,
    )


def _answers() -> Iterator[ExampleReading]:
    """The results of a copy and of a status."""
    ledger = LedgerReading(
        ledger_id=812,
        state=LedgerState.CLOSED,
        last_entry_id=0,
        length_bytes=418,
        custom_metadata={"component": "c2NoZW1h"},
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        entries_digest="2b7e151628aed2a6abf7158809cf4f3c762e7160f38b4da56a784d9045190cfe",
    )
    copied = SwitchLedger(**_READ, ledger_id=812, op=1, result=LedgerOutcome.COPIED, source=ledger, target=ledger)
    written = SwitchStatus(**_READ, action=StatusAction.STATUS_OLD, op=7, written=True)
    return _published((copied, written), 60)


def _published(readings: Sequence[Reading], second: int) -> Iterator[ExampleReading]:
    for number, reading in enumerate(readings):
        source = _SOURCES.get(type(reading), "headgate/switching")
        yield ExampleReading(source, f"switch-{second}-{number}", START + timedelta(seconds=second), reading)


def _make_known() -> Sequence[Reading]:
    statuses = (("old", ClusterStatus.ACTIVE), ("new", ClusterStatus.STANDBY))
    registered = tuple(
        RegisteredCluster(
            name=name,
            uri=f"zk+hierarchical://zk-{name}:2181/ledgers",
            instance_id=_INSTANCES[name],
            root="/ledgers",
            status=status,
            version=0,
        )
        for name, status in statuses
    )
    return (
        SwitchLease(**_READ, token=4, holder="headgate-1:4711", valid_ms=30_000),
        SwitchRegistry(**_READ, clusters=registered, bootstrap="old"),
        SwitchBrokers(**_READ, brokers=_BROKERS),
        *_clusters(),
        SwitchPrecheck(
            **_READ,
            source="old",
            target="new",
            ready=True,
            digest=_DIGEST,
            source_next_id=1077,
            target_next_id=_TARGET,
            to_import=2,
            greatest_id=1043,
            valid_ms=_TEN_MINUTES_MS,
        ),
    )


def _clusters() -> Sequence[Reading]:
    # The source has given 1077 ids: each child came and went.
    counted = GeneratorReading(hob=None, cversion=2 * 1077, num_children=0)
    generators = {"new": GeneratorReading(hob=1, cversion=0, num_children=0), "old": counted}
    return tuple(
        SwitchCluster(
            **_READ,
            name=name,
            instance_id=_INSTANCES[name],
            root="/ledgers",
            layout=Layout.HIERARCHICAL,
            generator=generator,
            took_ms=12,
        )
        for name, generator in generators.items()
    )


def _started() -> Sequence[Reading]:
    command = SwitchCommand(
        cluster=_CLUSTER,
        command=CommandName.START,
        args=CommandArgs(target="new"),
        actor="ana",
        reason="the old bookies are to be retired",
        idempotency_key="start-new-1",
        expected_epoch=0,
        precheck_digest=_DIGEST,
    )
    return (command,)


def _acked() -> Sequence[Reading]:
    acks = (SwitchBroker(**_READ, broker=b, sequence=1, epoch=1, writes=("new",), reads=("old",)) for b in _BROKERS)
    return (*acks, SwitchBrokers(**_READ, brokers=_BROKERS))


def _listed() -> Sequence[Reading]:
    references = (
        ReferenceReading(kind=LedgerKind.SCHEMA, path="/schemas/acme/orders/created", ledger_id=812, position="info"),
        ReferenceReading(
            kind=LedgerKind.CURSOR,
            path="/managed-ledgers/acme/orders/persistent/created/billing",
            ledger_id=1043,
            attribution="old",
        ),
    )
    name = "inventory-1"
    return (
        SwitchInventoryPart(**_READ, inventory=name, part=0, references=references),
        SwitchInventory(**_READ, inventory=name, parts=1, references=2, target="new", took_ms=850),
    )
