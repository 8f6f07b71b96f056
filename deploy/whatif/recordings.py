"""Reads recorded events for replay: from files (events, or the output of `kcat -J`) or from the observed topics."""

import json
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from connectors.kafka.history import read_history, read_ranges
from deploy.settings.application import Settings
from policies.batches import BATCHES, Batch
from policies.canary import CANARY
from policies.errors import UserError
from policies.registry import observed_topics
from policies.signatures import HEADER
from policies.units import from_millis, to_millis
from policies.wire import Event
from streaming.recording import Recording, make_recording, needed_offsets
from streaming.records import ObservedRecord
from streaming.replay import Recorded


class RecordedLine(NamedTuple):
    """A line of a file, and the Kafka record in it; the record is None if the line is only an event."""

    place: str
    text: bytes
    record: ObservedRecord | None


def read_events_of_files(files: Sequence[Path], prefix: str) -> Iterator[Recorded]:
    """Yield the events of files; events in Kafka records have their topic and append time.

    Raises:
        UserError: a file cannot be read.
    """
    observed = {f"{prefix}.{topic}" for topic in observed_topics()}
    for place, text, record in _read_lines(files):
        if record is None:
            yield Recorded(place, text)
        elif record.topic in observed:
            appended_at = from_millis(record.appended_ms)
            yield Recorded(place, record.value or b"", appended_at, record.topic.removeprefix(f"{prefix}."))


def read_events_of_topics(settings: Settings, since: datetime, to: datetime) -> Iterator[Recorded]:
    """Yield the events of the observed topics in a time range, without the canary's; raises as `read_history` does."""
    prefix = settings.topics.prefix
    topics = [settings.topics.topic(name) for name in observed_topics()]
    for record in read_history(settings.loop_kafka(), topics, since, to):
        if record.key == CANARY.encode():
            continue  # decisions about the canary are of no interest
        name = record.place.split("/")[0].removeprefix(f"{prefix}.")
        yield Recorded(record.place, record.value, record.appended_at, name)


def read_run_of_files(files: Sequence[Path], prefix: str) -> Recording:
    """Read a live run that `kcat -J` recorded: the observed topics and the topic of batches.

    Raises:
        UserError: a file cannot be read, or contains no batch.
    """
    records = [line.record for line in _read_lines(files) if line.record is not None]
    told = [record for record in records if record.topic == f"{prefix}.{BATCHES}"]
    batches = list(_parse_batches((f"{r.topic}/{r.partition}/{r.offset}", r.value or b"") for r in told))
    where = ", ".join(map(str, files))
    return make_recording(
        _require_batches(batches, where, f"record {prefix}.{BATCHES} too, with `kcat -J`"), records, prefix
    )


def read_run_of_topics(settings: Settings, since: datetime, to: datetime) -> Recording:
    """Read the live run of a time range from the topics; raises as `read_history` does, and if there is no batch."""
    prefix, topic = settings.topics.prefix, settings.topics.topic(BATCHES)
    told = read_history(settings.loop_kafka(), [topic], since, to)
    batches = _require_batches(list(_parse_batches((r.place, r.value) for r in told)), topic, "name another --from")
    records = []
    for read in read_ranges(settings.loop_kafka(), needed_offsets(batches, prefix)):
        name, partition, offset = read.place.split("/")
        place = (name, int(partition), int(offset), to_millis(read.appended_at))
        records.append(ObservedRecord(*place, read.value, None, read.key, read.signature))
    return make_recording(batches, records, prefix)


def _require_batches(batches: list[Batch], where: str, remedy: str) -> list[Batch]:
    if not batches:
        raise UserError(f"{where}: it contains no batch of the query: {remedy}, or replay without --batches")
    return batches


def _parse_batches(values: Iterable[tuple[str, bytes]]) -> Iterator[Batch]:
    for place, value in values:
        try:
            yield Event[Batch].model_validate_json(value).data
        except ValidationError:
            raise UserError(f"{place}: is no batch of the query") from None


def _read_lines(files: Sequence[Path]) -> Iterator[RecordedLine]:
    for file in files:
        try:
            with (
                nullcontext(sys.stdin.buffer) if file == Path("-") else file.open("rb") as lines
            ):  # - is standard input
                for number, line in enumerate(lines, 1):
                    if text := (line.removeprefix(BOM_UTF8) if number == 1 else line).strip():
                        yield RecordedLine(f"{file}:{number}", text, _parse_record(text))
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror})") from None


def _parse_record(line: bytes) -> ObservedRecord | None:
    """Return the record in a line of `kcat -J`."""
    if b'"payload"' not in line:
        return None
    try:
        said = json.loads(line)
        appended_ms = to_millis(from_millis(int(said["ts"])))  # fails for an instant outside the years 1 to 9999
        place = (str(said["topic"]), int(said["partition"]), int(said["offset"]), appended_ms)
        headers = said.get("headers") or []  # name, value, name, value, …
        signature = dict(zip(headers[::2], headers[1::2], strict=False)).get(HEADER)
        return ObservedRecord(*place, _encode(said["payload"]), None, _encode(said.get("key")), signature)
    except (ValueError, OverflowError, KeyError, TypeError, RecursionError):
        return None


def _encode(text: str | None) -> bytes | None:
    return None if text is None else str(text).encode()
