"""A recorded live run: observations and the batches that took them. Together they reproduce its decisions."""

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from policies.batches import Batch, Range
from policies.records import KEPT_BYTES, Cut, ObservedRecord
from policies.units import to_millis
from policies.wire import MAX_RECORD_BYTES
from streaming.replay import RecordedBatch

Partition = tuple[str, int]
"""(topic with its prefix, number)"""


class Recording(NamedTuple):
    """Batches in order, and the reasons why their replay may differ from the live run."""

    prefix: str
    """The prefix of the topics that the records are on."""
    batches: Sequence[RecordedBatch]
    flaws: Sequence[str]
    """Sentences; empty if the recording is complete."""


def make_recording(published: Iterable[Batch], records: Iterable[ObservedRecord], prefix: str) -> Recording:
    """Assign the records to their batches.

    Args:
        published: the batches as published; repetitions are dropped.
        records: of all partitions, in any order.
    """
    flaws: list[str] = []
    by_partition = _group_by_partition(records)
    batches = []
    for batch in _order_batches(published, flaws):
        taken = [record for range_ in batch.taken for record in _records_in(range_, by_partition, prefix, flaws)]
        batches.append(RecordedBatch(to_millis(batch.at), taken, batch.number == 0, batch.clock_ahead_ms))
    return Recording(prefix, batches, flaws)


def needed_offsets(published: Iterable[Batch], prefix: str) -> dict[Partition, tuple[int | None, int]]:
    """Return the first offset (None: the oldest) and the end offset that the batches need of each partition."""
    ranges: dict[Partition, list[Range]] = defaultdict(list)
    for batch in published:
        for each in batch.taken:
            ranges[f"{prefix}.{each.topic}", each.partition].append(each)
    needed: dict[Partition, tuple[int | None, int]] = {}
    for partition, taken in ranges.items():
        starts = [range_.start for range_ in taken if range_.start is not None]
        first = min(starts) if len(starts) == len(taken) else None
        needed[partition] = (first, max(range_.end for range_ in taken))
    return needed


def _order_batches(published: Iterable[Batch], flaws: list[str]) -> Iterator[Batch]:
    """Yield each batch once, and note gaps as flaws."""
    began_at, last = None, None
    for batch in published:
        if batch.number == 0 and batch.at != began_at:
            began_at = batch.at
        elif last is not None and batch.number <= last:
            continue
        elif last is None:
            flaws.append(
                f"the query had taken {batch.number} batches before the first that is recorded: its state of that "
                "time is unknown, so sequences of decisions, holds and graces begin again"
            )
        elif batch.number != last + 1:
            flaws.append(f"after batch {last} comes {batch.number}: the batches between them are not recorded")
        last = batch.number
        yield batch


def _group_by_partition(records: Iterable[ObservedRecord]) -> dict[Partition, list[ObservedRecord]]:
    found: dict[Partition, dict[int, ObservedRecord]] = defaultdict(dict)
    for record in records:
        found[record.topic, record.partition][record.offset] = _cut_if_too_large(record)
    return {partition: [by_offset[n] for n in sorted(by_offset)] for partition, by_offset in found.items()}


def _cut_if_too_large(record: ObservedRecord) -> ObservedRecord:
    """Keep only the first bytes of a record that is too large, as the query does."""
    value = record.value or b""
    if len(value) <= MAX_RECORD_BYTES:
        return record
    cut = Cut(len(value), hashlib.sha256(value).hexdigest())
    return record._replace(value=value[:KEPT_BYTES], cut=cut)


def _records_in(
    range_: Range, by_partition: dict[Partition, list[ObservedRecord]], prefix: str, flaws: list[str]
) -> list[ObservedRecord]:
    name = f"{prefix}.{range_.topic}"
    records = by_partition.get((name, range_.partition), [])
    first = 0 if range_.start is None else bisect_left(records, range_.start, key=lambda r: r.offset)
    found = records[first : bisect_left(records, range_.end, key=lambda r: r.offset)]
    if range_.start is not None and len(found) < range_.end - range_.start:
        flaws.append(f"{name}/{range_.partition}: records from offset {range_.start} to {range_.end} are gone")
    return found
