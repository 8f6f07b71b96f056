"""The numbers that bound a switch, as the machine takes them: whole milliseconds and counts."""

from dataclasses import dataclass

from policies.switching.references import Kind

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Limits:
    """Those of one broker cluster."""

    rollback_window_ms: int = DAY_MS
    cleanup_after_ms: int = 15 * DAY_MS
    copy_concurrency: int = 16
    max_deletions: int = 16
    retries: int = 5
    remapped: frozenset[Kind] = frozenset()
