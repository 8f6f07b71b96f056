"""All records of the loop's topics, read as they are written, before compaction or retention deletes them."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.system.undisturbed import Batch, Plans
from tests.system.waiting import eventually

_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class StoredRecord:
    """A record of a topic, whose name is without the prefix."""

    topic: str
    offset: int
    appended_ms: int
    key: str
    value: bytes | None

    @cached_property
    def event(self) -> dict[str, Any]:
        """The value of a record that Headgate wrote."""
        return dict(json.loads(self.value or b"{}"))

    @property
    def data(self) -> dict[str, Any]:
        """Data of the event."""
        return dict(self.event["data"])


class Reader:
    """Reads topics of one partition from their beginning on, and the batches of the query's checkpoint."""

    def __init__(self, servers: str, prefix: str, topics: Sequence[str], checkpoint: Path) -> None:
        options = {"group.id": "faults", "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        self._options = {"bootstrap.servers": servers, **options}
        self._consumer = Consumer(self._options)
        self._servers = servers
        self._admin = self._new_admin()
        self._prefix = prefix
        self._next = dict.fromkeys(topics, 0)
        self.of: dict[str, list[StoredRecord]] = defaultdict(list)
        """Records by topic, in the order of their offsets."""
        self.batches: list[Batch] = []
        self._plans = Plans(checkpoint, prefix)

    def close(self) -> None:
        """Close its consumer."""
        self._consumer.close()

    def read(self) -> None:
        """Read everything up to now."""
        self.batches += self._plans.read()
        ends = eventually("the ends of all topics", self._ends)
        behind = [topic for topic, end in ends.items() if self._next[topic] < end]
        self._consumer.assign([TopicPartition(f"{self._prefix}.{topic}", 0, self._next[topic]) for topic in behind])
        eventually("all topics are read", lambda: self._has_read(ends))

    def begin_anew(self, topic: str) -> None:
        """Forget the records of a topic that was deleted and created again, in the client too."""
        self._consumer.close()
        self._consumer = Consumer(self._options)
        self._next[topic] = 0
        self.of[topic].clear()

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._servers, "log_level": 0})

    def _ends(self) -> dict[str, int] | None:
        """By topic, the offset after its last record; None while a partition has no leader."""
        last: Any = OffsetSpec.latest  # has no types
        wanted = {TopicPartition(f"{self._prefix}.{topic}", 0): last() for topic in self._next}
        asked = self._admin.list_offsets(wanted, request_timeout=_TIMEOUT_SECONDS)
        try:
            found = {partition.topic: future.result().offset for partition, future in asked.items()}
        except KafkaException:
            # The client goes on asking the leaders that it knows, also when their broker is gone for good.
            self._admin = self._new_admin()
            return None
        return {topic.removeprefix(f"{self._prefix}."): offset for topic, offset in found.items()}

    def _has_read(self, ends: dict[str, int]) -> bool:
        # The client would wait for its whole timeout if it were asked for more records than there are.
        while missing := sum(max(0, end - self._next[topic]) for topic, end in ends.items()):
            messages = self._consumer.consume(min(missing, 1000), timeout=1.0)
            if not messages:
                return False
            for message in messages:
                if message.error() is None:
                    topic, offset = (message.topic() or "").removeprefix(f"{self._prefix}."), message.offset() or 0
                    key = (message.key() or b"").decode()
                    self.of[topic].append(StoredRecord(topic, offset, message.timestamp()[1], key, message.value()))
                    self._next[topic] = offset + 1
        return True
