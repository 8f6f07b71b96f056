"""Records as they lie in Kafka, from the readings of `tests.policies.scenario`."""

# ruff: noqa: N802, N803 - Spark names the hooks of a StatefulProcessor

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from policies.observations import Observation
from policies.wire import observation_event
from streaming.operator import PolicyOperator

TOPIC = "headgate.observed.log-dirs"


def event(observation: Observation) -> bytes:
    source = "headgate/collector/test"
    return observation_event(observation.reading, id=observation.id, source=source, time=observation.at)


def changed(observation: Observation, **fields: Any) -> bytes:
    """The event of an observation with other fields in its envelope; a field that is None is left out."""
    envelope = {**json.loads(event(observation)), **fields}
    return json.dumps({name: value for name, value in envelope.items() if value is not None}).encode()


def changed_data(observation: Observation, **fields: Any) -> bytes:
    """Like `changed`, for fields of the event's data."""
    data = {**json.loads(event(observation))["data"], **fields}
    return changed(observation, data={name: value for name, value in data.items() if value is not None})


def row(value: bytes | None, *, offset: int = 0, appended_ms: int = 0, topic: str = TOPIC) -> Row:
    return Row(value=value, topic=topic, partition=0, offset=offset, appended_ms=appended_ms)


def rows(*observations: Observation) -> list[Row]:
    """Input rows of the operator, each appended when it was observed."""
    return [row(event(o), offset=number, appended_ms=o.at_ms) for number, o in enumerate(observations)]


class UnwrappedOperator(PolicyOperator):
    """The tester puts each key into a tuple of one; Spark gives a key of two columns as it is."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        return super().handleInputRows(key[0], rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        return super().handleExpiredTimer(key[0], timerValues, expiredTimerInfo)
