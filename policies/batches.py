"""The micro-batches of the query: the time and the records of each, which its other topics do not show.

Each step gets the batch's time as `now` and the batch's records as its observations. So the observed topics together
with these records reproduce the decisions byte for byte (`streaming/recording.py`).
"""

from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.decisions import deterministic_id
from policies.units import Instant, to_millis
from policies.wire import encode_event

BATCHES = "batches"
"""The topic of the batches, without its prefix."""
BATCHES_KEY = "query"
"""The key of all its records, so that they stay in order whatever the number of partitions."""


class Range(BaseModel):
    """Records of one partition."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    topic: str = Field(description="An observed topic, without the prefix.")
    partition: int = Field(ge=0)
    start: int | None = Field(description="The first offset; null: the oldest there was.")
    end: int = Field(ge=0, description="The offset after the last one.")


class Batch(BaseModel):
    """A micro-batch: its time and the records it took. Repeated after a restart, with the same id."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str] = "headgate.batch.v1"

    number: int = Field(ge=0, description="Grows by one; 0 begins a run without a checkpoint.")
    at: Instant = Field(description="The time of the batch, which each of its steps had as `now`.")
    clock_ahead_ms: int = Field(
        default=0,
        description="How far the query's clock, by which timers fire, was ahead of `at`; 0 if it was right.",
    )
    taken: tuple[Range, ...] = Field(description="In the order of topic and partition; empty if only timers fired.")


def batch_event(batch: Batch) -> bytes:
    """Encode a batch; the same batch gives the same bytes."""
    id_ = batch_id(batch.number, batch.at)
    return encode_event(Batch.event_type, id_, "headgate/query", BATCHES, batch.at, batch)


def batch_id(number: int, at: datetime) -> str:
    """The id of the batch's event."""
    return deterministic_id(BATCHES, number, to_millis(at))
