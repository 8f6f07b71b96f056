"""Znodes as brokers write them, made with the messages that read them; held against captured ones in the tests."""

from connectors.pulsar.metadata import _MESSAGES, CLUSTER_PROPERTY


def cursor_info(ledger_id: int, *, attribution: str | None = None) -> bytes:
    """A cursor's info, not compressed."""
    info = _MESSAGES["ManagedCursorInfo"](cursorsLedgerId=ledger_id)
    if attribution is not None:
        info.cursorProperties.add(name=CLUSTER_PROPERTY, value=attribution)
    return bytes(info.SerializeToString())


def schema_locator(*ledger_ids: int, attribution: str | None = None, first_version: int = 0) -> bytes:
    """A schema's locator: one version for each ledger, the last one is the current."""
    locator = _MESSAGES["SchemaLocator"]()
    for version, ledger_id in enumerate(ledger_ids, first_version):
        entry = locator.index.add(version=version)
        entry.position.ledgerId, entry.position.entryId = ledger_id, 0
        if attribution is not None:
            entry.position.properties.add(name=CLUSTER_PROPERTY, value=attribution)
    locator.info.CopyFrom(locator.index[-1])
    return bytes(locator.SerializeToString())


def topic_info(
    *ledger_ids: int, attribution: str | None = None, offloaded: bool = False, deleted: bool = False
) -> bytes:
    """A topic's managed ledger, not compressed."""
    info = _MESSAGES["ManagedLedgerInfo"]()
    for ledger_id in ledger_ids:
        ledger = info.ledgerInfo.add(ledgerId=ledger_id)
        if offloaded:
            ledger.offloadContext.complete, ledger.offloadContext.bookkeeperDeleted = True, deleted
        if attribution is not None:
            ledger.properties.add(name=CLUSTER_PROPERTY, value=attribution)
    return bytes(info.SerializeToString())


def compaction_info(compacted: int, *, ledger_id: int = -1) -> bytes:
    """The cursor of a topic's compaction; without a ledger of its own nobody has the topic loaded."""
    info = _MESSAGES["ManagedCursorInfo"](cursorsLedgerId=ledger_id)
    info.properties.add(name="CompactedTopicLedger", value=compacted)
    return bytes(info.SerializeToString())


def delayed_info(ledger_id: int, *indexes: int) -> bytes:
    """A cursor with indexes of delayed messages."""
    info = _MESSAGES["ManagedCursorInfo"](cursorsLedgerId=ledger_id)
    for number, index in enumerate(indexes):
        info.cursorProperties.add(name=f"#pulsar.internal.delayed.bucket_{number}_{number + 1}", value=str(index))
    return bytes(info.SerializeToString())
