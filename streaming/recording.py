"""A recorded live run: observations and the batches that took them; together they reproduce its decisions."""

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from policies.batches import Batch, Range
from policies.units import to_millis
from policies.wire import MAX_RECORD_BYTES
from streaming.dead_letters import KEPT_BYTES, Cut, ObservedRecord
from streaming.replay import RecordedBatch

Partition = tuple[str, int]
"""Topic, with its prefix, and number."""


class Recording(NamedTuple):
    """Batches in the order they were taken in, and why they may decide otherwise than live did."""

    prefix: str
    """Of the topics that the records are on."""
    batches: Sequence[RecordedBatch]
    flaws: Sequence[str]
    """In sentences; none: the run is whole."""


def recording(told: Iterable[Batch], records: Iterable[ObservedRecord], prefix: str) -> Recording:
    """Put the records into their batches.

    Args:
        told: as they were published; repeats are dropped.
        records: of all partitions, in whatever order.
        prefix: of all topics.
    """
    flaws: list[str] = []
    of_partition = _by_partition(records)
    batches = []
    for batch in _in_order(told, flaws):
        taken = [record for range_ in batch.taken for record in _taken(range_, of_partition, prefix, flaws)]
        batches.append(RecordedBatch(to_millis(batch.at), taken, batch.number == 0, batch.clock_ahead_ms))
    return Recording(prefix, batches, flaws)


def needed(told: Iterable[Batch], prefix: str) -> dict[Partition, tuple[int | None, int]]:
    """From which offset (None: the oldest there is) up to before which the batches need each partition."""
    ranges: dict[Partition, list[Range]] = defaultdict(list)
    for batch in told:
        for each in batch.taken:
            ranges[f"{prefix}.{each.topic}", each.partition].append(each)
    return {partition: (_first(of_it), max(range_.end for range_ in of_it)) for partition, of_it in ranges.items()}


def _first(ranges: Iterable[Range]) -> int | None:
    starts = [range_.start for range_ in ranges]
    return None if None in starts else min(start for start in starts if start is not None)


def _in_order(told: Iterable[Batch], flaws: list[str]) -> Iterator[Batch]:
    """Each once; says where some are missing."""
    began_at, last = None, None
    for batch in told:
        if batch.number == 0 and batch.at != began_at:
            began_at = batch.at
        elif last is not None and batch.number <= last:
            continue
        elif last is None:
            flaws.append(
                f"the query had taken {batch.number} batches before the first that is here: it is not known what it "
                "knew then, so numbers of decisions, holds and graces begin anew"
            )
        elif batch.number != last + 1:
            flaws.append(f"after batch {last} comes {batch.number}: those between them are not recorded")
        last = batch.number
        yield batch


def _by_partition(records: Iterable[ObservedRecord]) -> dict[Partition, list[ObservedRecord]]:
    found: dict[Partition, dict[int, ObservedRecord]] = defaultdict(dict)
    for record in records:
        found[record.topic, record.partition][record.offset] = _as_taken(record)
    return {partition: [of_it[n] for n in sorted(of_it)] for partition, of_it in found.items()}


def _as_taken(record: ObservedRecord) -> ObservedRecord:
    """As the query hands it to a policy: of one that is too large the head alone."""
    value = record.value or b""
    if len(value) <= MAX_RECORD_BYTES:
        return record
    cut = Cut(len(value), hashlib.sha256(value).hexdigest())
    return record._replace(value=value[:KEPT_BYTES], cut=cut)


def _taken(
    range_: Range, of_partition: dict[Partition, list[ObservedRecord]], prefix: str, flaws: list[str]
) -> list[ObservedRecord]:
    name = f"{prefix}.{range_.topic}"
    records = of_partition.get((name, range_.partition), [])
    first = 0 if range_.start is None else bisect_left(records, range_.start, key=lambda r: r.offset)
    found = records[first : bisect_left(records, range_.end, key=lambda r: r.offset)]
    if range_.start is not None and len(found) < range_.end - range_.start:
        flaws.append(f"{name}/{range_.partition}: records from offset {range_.start} to {range_.end} are gone")
    return found
