"""Signed records on a real loop: what is not signed is believed by nobody, and keys are changed while it runs."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from policies.signatures import HEADER, key_id
from tests.system.loop import UNHURRIED, Headgate, Topic, await_ready, http_get, write_settings
from tests.system.test_loop_recovery import reading
from tests.system.waiting import DEADLINE_SECONDS, eventually

OLD, NEW, DECIDED = "0ld" * 20, "new" * 20, "dec" * 20


@dataclass
class SignedLoop:
    servers: str
    prefix: str
    port: int
    observed_key: Path
    headgate: Headgate

    def topic(self, name: str) -> Topic:
        return Topic(self.servers, f"{self.prefix}.{name}")

    def append(self, topic: str, key: str, value: bytes, signature: str | None) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0})
        headers: dict[str, str | bytes | None] = {} if signature is None else {HEADER: signature}
        producer.produce(f"{self.prefix}.{topic}", value, key, headers=headers)
        assert producer.flush(DEADLINE_SECONDS) == 0

    def append_aborted(self, topic: str, key: str, value: bytes) -> None:
        """Append a record in a transaction, and abort that."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(DEADLINE_SECONDS)
        producer.begin_transaction()
        producer.produce(f"{self.prefix}.{topic}", value, key)
        assert producer.flush(DEADLINE_SECONDS) == 0
        producer.abort_transaction(DEADLINE_SECONDS)

    def last(self, topic: str) -> Message | None:
        """The newest record there."""
        place = TopicPartition(f"{self.prefix}.{topic}", 0)
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "t", "enable.auto.commit": False})
        try:
            end = consumer.get_watermark_offsets(place, timeout=DEADLINE_SECONDS)[1]
            consumer.assign([TopicPartition(place.topic, 0, max(0, end - 1))])
            return consumer.poll(DEADLINE_SECONDS) if end else None
        finally:
            consumer.close()

    def last_if_signed(self, topic: str, key: str) -> Message | None:
        """The newest record there, if this key has signed it."""
        last = self.last(topic)
        return last if last is not None and signer(last) == key_id(key.encode()) else None

    def factor(self) -> str | None:
        """As the exporter shows it."""
        lines = (http_get(self.port, "/metrics") or (0, ""))[1].splitlines()
        found = [line for line in lines if line.startswith('headgate_throttle_factor{cluster="payments"')]
        return found[0].split()[-1] if found else None


def signer(message: Message | None) -> str | None:
    """The id of the key it was signed with."""
    headers: dict[str, Any] = dict((message and message.headers()) or ())
    return headers[HEADER].decode().split(";")[1] if HEADER in headers else None


@pytest.fixture
def loop(loop_kafka: str, tmp_path: Path, free_port: int) -> Iterator[SignedLoop]:
    observed, decided = tmp_path / "observed.key", tmp_path / "decided.key"
    observed.write_text(OLD)
    decided.write_text(DECIDED)
    prefix = f"t{uuid.uuid4().hex[:8]}"
    file = write_settings(
        tmp_path / "headgate.yaml",
        kafka={
            "bootstrap_servers": loop_kafka,
            "signing": {"observed_keys": [str(observed)], "decided_keys": [str(decided)]},
        },
        topics={"prefix": prefix},
        data_dir=str(tmp_path / "data"),
        http={"port": free_port},
        clusters={"payments": {"kafka": {"bootstrap_servers": loop_kafka, "poll_interval": "500ms"}}},
        policies={"throttle": {"hard": {"available_ratio_below": 1.0}, "heartbeat": "15s"}},
        stream=UNHURRIED,
    )
    with Headgate(["run", "-s", str(file)], tmp_path / "run.log") as headgate:
        await_ready(headgate, free_port)
        yield SignedLoop(loop_kafka, prefix, free_port, observed, headgate)
        assert headgate.stop() == 0
        assert not any(secret in headgate.output() for secret in (OLD, NEW, DECIDED))


def test_what_is_not_signed_is_believed_by_nobody_and_keys_change_while_the_loop_runs(loop: SignedLoop) -> None:
    with loop.topic("decided.throttle") as decided, loop.topic("dead-letters") as dead:
        true = eventually("a stop, signed and believed", lambda: decided.data()[-1:] or None)[0]
        assert (true["factor"], signer(loop.last("decided.throttle"))) == (0.0, key_id(DECIDED.encode()))
        eventually("the exporter shows it", lambda: loop.factor() == "0.0" or None)
        genuine = loop.last("observed.log-dirs")
        assert genuine is not None
        signature = dict(genuine.headers() or ())[HEADER]
        assert isinstance(signature, bytes)

        loop.append_aborted("observed.log-dirs", "payments", b"never published")
        loop.append("observed.log-dirs", "payments", reading("payments", 9), None)
        loop.append("observed.log-dirs", "payments", reading("payments", 9), signature.decode())
        loop.append("observed.log-dirs", "payments", genuine.value() or b"", signature.decode())
        letters = eventually("dead letters", lambda: found if len(found := dead.data()) > 2 else None)
        assert sorted(letter["detail"].rpartition("before: ")[2] for letter in letters) == [
            "signature: no header headgate-signature",
            "signature: signed, but not this topic, key and value",
            "this one is repeated",
        ]

        forged = {**true, "factor": 1.0, "verdict": "raise", "sequence": true["sequence"] + 5, "decision_id": "forged"}
        event = json.loads(loop.last("decided.throttle").value() or b"")  # type: ignore[union-attr]
        loop.append("decided.throttle", "payments", json.dumps({**event, "data": forged}).encode(), signature.decode())
        eventually("it is said", lambda: "their signatures do not hold" in loop.headgate.output() or None)
        assert loop.factor() == "0.0"

        loop.observed_key.write_text(NEW)
        first = eventually("the new key signs", lambda: loop.last_if_signed("observed.log-dirs", NEW))
        with loop.topic("observed.log-dirs") as observed:

            def is_believed() -> bool:
                signed = {entry.event["id"] for entry in observed.entries() if entry.offset >= (first.offset() or 0)}
                return any(signed & set(decision["evidence"]) for decision in decided.data())

            eventually("and is believed", is_believed)
