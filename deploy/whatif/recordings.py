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
from policies.records import ObservedRecord
from policies.registry import observed_topics
from policies.units import from_millis, to_millis
from policies.wire import Event
from streaming.recording import Recording, make_recording, needed_offsets
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
            yield _make_recorded(place, record, prefix)


def read_events_of_topics(settings: Settings, since: datetime, to: datetime) -> Iterator[Recorded]:
    """Yield the events of the observed topics in a time range, without the canary's; raises as `read_history` does."""
    topics = [settings.topics.topic(name) for name in observed_topics()]
    for record in read_history(settings.loop_kafka(), topics, since, to):
        if record.key != CANARY.encode():  # decisions about the canary are of no interest
            yield _make_recorded(record.position(), record, settings.topics.prefix)


def _make_recorded(place: str, record: ObservedRecord, prefix: str) -> Recorded:
    topic = record.topic.removeprefix(f"{prefix}.")
    return Recorded(place, record.value or b"", from_millis(record.appended_ms), topic)


def read_run_of_files(files: Sequence[Path], prefix: str) -> Recording:
    """Read a live run that `kcat -J` recorded: the observed topics and the topic of batches.

    Raises:
        UserError: a file cannot be read, or contains no batch.
    """
    records = [line.record for line in _read_lines(files) if line.record is not None]
    told = [record for record in records if record.topic == f"{prefix}.{BATCHES}"]
    where = ", ".join(map(str, files))
    batches = _parse_batches(told, where, f"record {prefix}.{BATCHES} too, with `kcat -J`")
    return make_recording(batches, records, prefix)


def read_run_of_topics(settings: Settings, since: datetime, to: datetime) -> Recording:
    """Read the live run of a time range from the topics; raises as `read_history` does, and if there is no batch."""
    prefix, topic = settings.topics.prefix, settings.topics.topic(BATCHES)
    told = read_history(settings.loop_kafka(), [topic], since, to)
    batches = _parse_batches(told, topic, "name another --from")
    records = read_ranges(settings.loop_kafka(), needed_offsets(batches, prefix))
    return make_recording(batches, records, prefix)


def _parse_batches(records: Iterable[ObservedRecord], where: str, remedy: str) -> list[Batch]:
    batches = []
    for record in records:
        try:
            batches.append(Event[Batch].model_validate_json(record.value or b"").data)
        except ValidationError:
            raise UserError(f"{record.position()}: is no batch of the query") from None
    if not batches:
        raise UserError(f"{where}: it contains no batch of the query: {remedy}, or replay without --batches")
    return batches


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
        return ObservedRecord(*place, _encode(said["payload"]), None, _encode(said.get("key")))
    except (ValueError, OverflowError, KeyError, TypeError, RecursionError):
        return None


def _encode(text: str | None) -> bytes | None:
    return None if text is None else str(text).encode()
