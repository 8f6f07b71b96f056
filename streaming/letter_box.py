"""Rate limit of dead letters: a few of each kind per minute are written, the others are counted.

Pure. The counts are stored with the key whose records they are about, so a repeated batch writes the same dead letters;
their size is bounded, whatever names are made up.
"""

from collections.abc import Iterator

from msgspec import Struct

from policies.units import from_millis
from policies.wire import BadRecordError, DeadLetterReason
from streaming.dead_letters import DeadLettersCounted, ObservedRecord, dead_letter, letters_counted
from streaming.output import Output

WINDOW_MS = 60_000
LETTERS_A_WINDOW = 5
"""Of one kind: topic, reason and, for unknown clusters, name."""
MOST_KINDS = 20
"""Of one key; further names are counted together."""

Kind = tuple[str, str, str | None]
"""(topic, reason, name of an unknown cluster)."""


class KindCount(Struct, array_like=True):
    """What became of one kind in this window."""

    topic: str
    reason: str
    name: str | None
    written: int = 0
    left_out: int = 0
    last: str = ""
    """Where the last one lies that was left out."""


class LetterBook(Struct, array_like=True, frozen=True):
    """What was written and left out since the window began."""

    since_ms: int = 0
    kinds: tuple[KindCount, ...] = ()

    @property
    def due_ms(self) -> int | None:
        """When what was left out is to be told; None: nothing was."""
        return self.since_ms + WINDOW_MS if any(kind.left_out for kind in self.kinds) else None


class LetterBox:
    """Takes the bad records of one key and batch.

    Args:
        policy: of the key.
        cluster: of the key; empty where records were taken for no known cluster.
        book: as the last batch left it.
        now_ms: the time of the batch.
    """

    def __init__(self, policy: str, cluster: str, book: LetterBook, now_ms: int) -> None:
        self._policy = policy
        self._cluster = cluster
        self._now_ms = now_ms
        # A clock that was set back must not make this window last until it is there again.
        is_over = not book.since_ms <= now_ms < book.since_ms + WINDOW_MS
        self._told = book if is_over else LetterBook()
        self._since_ms = now_ms if is_over else book.since_ms
        kinds = () if is_over else book.kinds
        self._kinds: dict[Kind, KindCount] = {
            (k.topic, k.reason, k.name): KindCount(k.topic, k.reason, k.name, k.written, k.left_out, k.last)
            for k in kinds
        }

    def counted(self) -> Iterator[Output]:
        """What the window that is over left out."""
        for kind in self._told.kinds:
            if kind.left_out:
                counted = DeadLettersCounted(
                    reason=DeadLetterReason(kind.reason),
                    topic=kind.topic,
                    cluster=kind.name or self._cluster or None,
                    count=kind.left_out,
                    since=from_millis(self._told.since_ms),
                    until=from_millis(self._now_ms),
                    last=kind.last,
                )
                yield letters_counted(counted, self._policy, self._cluster)

    def put(self, record: ObservedRecord, error: BadRecordError) -> Iterator[Output]:
        """Its letter, unless there were enough of its kind."""
        kind = self._kind(record.topic, error)
        if kind.written < LETTERS_A_WINDOW:
            kind.written += 1
            yield dead_letter(record, error)
        else:
            kind.left_out += 1
            kind.last = record.place()

    def book(self) -> LetterBook:
        """What is to be kept."""
        return LetterBook(self._since_ms, tuple(self._kinds.values())) if self._kinds else LetterBook()

    def _kind(self, topic: str, error: BadRecordError) -> KindCount:
        named = (topic, error.reason.value, error.cluster)
        if named not in self._kinds and error.cluster is not None and len(self._kinds) >= MOST_KINDS:
            named = (topic, error.reason.value, None)
        return self._kinds.setdefault(named, KindCount(*named))
