"""Znodes as brokers write them, made with the messages that read them; held against captured ones in the tests."""

from connectors.pulsar.metadata import _MESSAGES, CLUSTER_PROPERTY


def cursor_info(ledger_id: int, *, attribution: str | None = None) -> bytes:
    """A cursor's info, not compressed."""
    info = _MESSAGES["ManagedCursorInfo"](cursorsLedgerId=ledger_id)
    if attribution is not None:
        info.cursorProperties.add(name=CLUSTER_PROPERTY, value=attribution)
    return bytes(info.SerializeToString())


def schema_locator(*ledger_ids: int, attribution: str | None = None) -> bytes:
    """A schema's locator: one version for each ledger, the last one is the current."""
    locator = _MESSAGES["SchemaLocator"]()
    for version, ledger_id in enumerate(ledger_ids):
        entry = locator.index.add(version=version)
        entry.position.ledgerId, entry.position.entryId = ledger_id, 0
        if attribution is not None:
            entry.position.properties.add(name=CLUSTER_PROPERTY, value=attribution)
    locator.info.CopyFrom(locator.index[-1])
    return bytes(locator.SerializeToString())
