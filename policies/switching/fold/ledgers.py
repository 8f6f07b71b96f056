"""Folds single ledgers: how they are described on the wire, and what executors report about them."""

from policies.switching.events import LedgerResult, StatusResult
from policies.switching.ledgers import Ledger
from policies.switching.readings import LedgerReading, SwitchLedger, SwitchStatus
from policies.switching.state import SwitchAction


def result_of(reading: SwitchLedger) -> LedgerResult:
    """What became of an order about a ledger."""
    return LedgerResult(
        reading.ledger_id, reading.op, reading.result, ledger_of(reading.source), ledger_of(reading.target),
        reading.changed, reading.new_id, reading.attribution, reading.detail or "",
    )  # fmt: skip


def status_of(reading: SwitchStatus) -> StatusResult:
    """What became of a status that was to be written."""
    return StatusResult(SwitchAction(reading.action.value), reading.op, reading.written)


def ledger_of(reading: LedgerReading | None) -> Ledger | None:
    """A ledger as the machine knows it."""
    if reading is None:
        return None
    plain = reading.model_dump(exclude={"custom_metadata"})
    return Ledger(**plain, custom_metadata=tuple(sorted(reading.custom_metadata.items())))
