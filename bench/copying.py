"""Copies many ledgers as the executor of a switch does: each on a thread, more of them than are copied at once."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from connectors.bookkeeper.copier import CONCURRENCY, LedgerCopier
from connectors.bookkeeper.copy_outcomes import CopyResult
from connectors.switching.reconciler import REQUESTED_COPIES


def copy_all(copier: LedgerCopier, ledger_ids: Iterable[int]) -> list[CopyResult]:
    """Copy ledgers in parallel; return the results in their order."""
    with ThreadPoolExecutor(REQUESTED_COPIES * CONCURRENCY, thread_name_prefix="ledgers") as pool:
        return list(pool.map(copier.copy, ledger_ids))
