"""From what is heard on the wire to the machine's events, and from a report to its reading."""

from msgspec.structs import replace

from policies.observations import Observation, Outcome, Reading
from policies.switching.events import (
    BrokerSeen,
    Cleanup,
    CloseClient,
    ClusterSeen,
    Event,
    InventorySeen,
    LeaseSeen,
    LedgerResult,
    MembersSeen,
    Precheck,
    Prechecked,
    Register,
    RegistrySeen,
    Rollback,
    Start,
    StatusResult,
    Unregister,
)
from policies.switching.id_generators import IdGenerator
from policies.switching.ledgers import Ledger
from policies.switching.precheck.snapshot import ClusterSnapshot
from policies.switching.readings import (
    CommandName,
    LedgerReading,
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
from policies.switching.references import Reference
from policies.switching.state import (
    Directive,
    InventoryAssembly,
    InventoryPart,
    OrchestratorLease,
    PrecheckResult,
    RegistryEntry,
    SwitchAction,
    put,
)


def event_of(seen: Observation) -> Event | None:
    """The event a reading is; null for one that could not be read, and for the parts of inventories."""
    reading, at_ms = seen.reading, seen.at_ms
    if isinstance(reading, SwitchCommand):
        return _command(reading)
    if reading.outcome is not Outcome.OK:
        return None
    return _answer(reading) or _sighting(reading, at_ms)


def _sighting(reading: Reading, at_ms: int) -> Event | None:
    match reading:
        case SwitchLease():
            return LeaseSeen(OrchestratorLease(reading.token, reading.holder, at_ms + reading.valid_ms))
        case SwitchRegistry():
            return _registry(reading)
        case SwitchBrokers():
            return MembersSeen(reading.brokers, at_ms)
        case SwitchBroker():
            return BrokerSeen(
                reading.broker, reading.sequence, reading.epoch, reading.client_init_failed, reading.writes,
                reading.reads, at_ms,
            )  # fmt: skip
        case SwitchCluster():
            return ClusterSeen(_cluster(reading, at_ms))
        case SwitchPrecheck():
            return Prechecked(_checked(reading, at_ms))
    return None


def _answer(reading: Reading) -> Event | None:
    match reading:
        case SwitchLedger():
            return LedgerResult(
                reading.ledger_id, reading.op, reading.result, ledger_of(reading.source), ledger_of(reading.target),
                reading.changed, reading.new_id, reading.attribution, reading.detail or "",
            )  # fmt: skip
        case SwitchStatus():
            return StatusResult(SwitchAction(reading.action.value), reading.op, reading.written)
    return None


def _command(given: SwitchCommand) -> Event:
    """Names that a command lacks are empty, and so found nowhere."""
    args, name, target = given.args, given.args.name or "", given.args.target or ""
    dry_run = given.command is CommandName.CLEANUP if given.dry_run is None else given.dry_run
    key, epoch = given.idempotency_key, given.expected_epoch
    match given.command:
        case CommandName.REGISTER:
            identity = (args.instance_id, args.root) if name and args.uri else (None, None)
            return Register(
                key=key, dry_run=dry_run, expected_epoch=epoch, name=name, uri=args.uri or "",
                instance_id=identity[0], root=identity[1],
            )  # fmt: skip
        case CommandName.UNREGISTER:
            return Unregister(key=key, dry_run=dry_run, expected_epoch=epoch, name=name)
        case CommandName.PRECHECK:
            return Precheck(key=key, dry_run=dry_run, expected_epoch=epoch, target=target)
        case CommandName.START:
            return Start(key=key, dry_run=dry_run, expected_epoch=epoch, target=target, digest=given.precheck_digest)
        case CommandName.ROLLBACK:
            return Rollback(key=key, dry_run=dry_run, expected_epoch=epoch, attribution_only=args.attribution_only)
        case CommandName.CLEANUP:
            return Cleanup(key=key, dry_run=dry_run, expected_epoch=epoch)
        case CommandName.CLOSE_CLIENT:
            return CloseClient(key=key, dry_run=dry_run, expected_epoch=epoch, name=name)


def _registry(reading: SwitchRegistry) -> RegistrySeen:
    entries = (
        RegistryEntry(c.name, c.uri, c.instance_id, c.root.rstrip("/"), c.status, c.version)
        for c in sorted(reading.clusters, key=lambda c: c.name)
    )
    written = reading.directive
    directive = Directive(written.epoch, written.target) if written else None
    return RegistrySeen(tuple(entries), reading.bootstrap, directive, reading.committed_epoch)


def _cluster(reading: SwitchCluster, at_ms: int) -> ClusterSnapshot:
    read = reading.generator
    return ClusterSnapshot(
        name=reading.name,
        instance_id=reading.instance_id,
        root=reading.root,
        layout=reading.layout,
        generator=IdGenerator(read.hob, read.cversion, read.num_children) if read else None,
        read_ms=at_ms - reading.took_ms,
    )


def _checked(reading: SwitchPrecheck, at_ms: int) -> PrecheckResult:
    return PrecheckResult(
        source=reading.source,
        target=reading.target,
        ready=reading.ready,
        digest=reading.digest,
        reasons=tuple(dict.fromkeys(f.reason for f in reading.findings)),
        checked_ms=at_ms,
        expires_ms=at_ms + reading.valid_ms,
        greatest_id=reading.greatest_id,
    )


def ledger_of(reading: LedgerReading | None) -> Ledger | None:
    """A ledger as the machine knows it."""
    if reading is None:
        return None
    plain = reading.model_dump(exclude={"custom_metadata"})
    return Ledger(**plain, custom_metadata=tuple(sorted(reading.custom_metadata.items())))


# --- inventories


def assemble(
    known: InventoryAssembly | None, seen: Observation
) -> tuple[InventoryAssembly | None, InventorySeen | None]:
    """Put a part or manifest to those of its inventory; the whole inventory once nothing is missing.

    One inventory is put together at a time: a later one takes the place of one that is not complete.
    """
    reading = seen.reading
    if not isinstance(reading, SwitchInventoryPart | SwitchInventory):
        return known, None
    if reading.outcome is not Outcome.OK:
        return (None if known and known.inventory == reading.inventory else known), None
    if known is not None and known.inventory == reading.inventory and known.complete:
        return known, None
    if known is None or known.inventory != reading.inventory:
        if known is not None and seen.at_ms < known.at_ms:
            return known, None
        known = InventoryAssembly(reading.inventory, seen.at_ms)
    if isinstance(reading, SwitchInventory):
        known = replace(
            known, expected_parts=reading.parts, expected_references=reading.references, target=reading.target,
            began_ms=seen.at_ms - reading.took_ms,
        )  # fmt: skip
    else:
        known = replace(known, parts=put(known.parts, _part(reading), "number"))
    known = replace(known, at_ms=max(known.at_ms, seen.at_ms))
    if not _is_whole(known):
        return known, None
    return InventoryAssembly(known.inventory, known.at_ms, complete=True), _whole(known)


def _part(reading: SwitchInventoryPart) -> InventoryPart:
    references = (Reference(r.kind, r.path, r.ledger_id, r.attribution, r.position) for r in reading.references)
    existing = (ledger for r in reading.existing if (ledger := ledger_of(r)) is not None)
    return InventoryPart(reading.part, tuple(references), tuple(existing))


def _is_whole(known: InventoryAssembly) -> bool:
    numbers = [p.number for p in known.parts]
    count = sum(len(p.references) for p in known.parts)
    return (
        known.expected_parts is not None
        and numbers == list(range(known.expected_parts))
        and count == known.expected_references
    )


def _whole(known: InventoryAssembly) -> InventorySeen:
    references = tuple(r for p in known.parts for r in p.references)
    existing = {ledger.ledger_id: ledger for p in known.parts for ledger in p.existing}
    return InventorySeen(references, known.began_ms, known.target, existing)
