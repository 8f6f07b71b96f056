"""The throttle policy in Quix Streams: state in its RocksDB, recovered from its changelog topic, at-least-once.

It runs in an environment of its own (made by `bench/peers.py`), with the library's defaults: position and state are
committed every five seconds. The time of a step is that of its record, so that a repeated step after a crash makes the
same ids. It has no timers: a due timer waits for the cluster's next record.

    python bench/peer_quix.py SERVERS PREFIX STATE_FOLDER
"""

import sys
from typing import Any

from quixstreams import Application, State, message_context
from quixstreams.models import SerializationContext, Serializer

from bench.peer_loop import HostedPolicy
from policies.wire import ObservedRecord, Output

KEY = "state"
OUTPUTS = ("decided.throttle", "decided.standing", "decided.alerts", "audit", "dead-letters")


class ValueOf(Serializer):  # type: ignore[misc]  # untyped here, where the library is not installed
    """Returns an output's bytes unchanged."""

    def __call__(self, value: Output, ctx: SerializationContext) -> bytes:  # noqa: ARG002 - Quix Streams' signature
        """Return the record's value."""
        return value.value


def application(servers: str, prefix: str, folder: str) -> Application:
    """Build the pipeline: one stateful step a record, each of its outputs to its own topic."""
    app = Application(
        broker_address=servers,
        consumer_group=f"{prefix}.peer-quix",
        auto_offset_reset="earliest",
        state_dir=folder,
        # Static membership; otherwise a killed member keeps the partition for its session's 45 seconds.
        consumer_extra_config={"fetch.wait.max.ms": 10, "group.instance.id": "1"},
        producer_extra_config={"linger.ms": 0},
        auto_create_topics=True,  # its changelog
    )
    policy = HostedPolicy(prefix)
    topics: dict[str, Any] = {}

    def step(value: bytes, cluster: str, timestamp_ms: int, _headers: object, state: State) -> list[Output]:
        at = message_context()
        record = ObservedRecord(at.topic, at.partition, at.offset, timestamp_ms, value)
        hosted = policy.step(cluster, state.get_bytes(KEY), [record], timestamp_ms)
        if hosted.kept is not None:
            state.set_bytes(KEY, hosted.kept)
        return list(hosted.outputs)

    def topic(output: Output, *_: object) -> Any:
        return topics[output.topic]

    for name in OUTPUTS:
        topics[name] = app.topic(f"{prefix}.{name}", value_serializer=ValueOf(), key_serializer="str")
    observed = app.topic(f"{prefix}.observed.log-dirs", value_deserializer="bytes", key_deserializer="str")
    decided = app.dataframe(observed).apply(step, stateful=True, expand=True, metadata=True)
    decided.to_topic(topic, key=lambda output: output.key)
    return app


if __name__ == "__main__":
    application(*sys.argv[1:4]).run()
