"""The throttle policy in Quix Streams: state in its RocksDB, recovered from its changelog topic, at-least-once.

It runs in an environment of its own (made by `bench/peers.py`), with the library's defaults: position and state are
committed every five seconds. The time of a step is that of its record, so that a repeated step after a crash makes the
same ids. It has no timers: a due timer waits for the cluster's next record.

    python bench/peer_quix.py SERVERS PREFIX STATE_FOLDER
"""

import sys
from typing import Any

import msgspec
from quixstreams import Application, State, message_context
from quixstreams.models import SerializationContext, Serializer

from policies.throttle import ThrottleSettings
from policies.wire import ObservedRecord, Output
from streaming.host import PolicyHost
from streaming.key_state import decode
from streaming.transition import reconcile
from tests.eager import EAGER

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
        consumer_extra_config={"fetch.wait.max.ms": 10},
        producer_extra_config={"linger.ms": 0},
        auto_create_topics=True,  # its changelog
    )
    host = PolicyHost({"throttle": ThrottleSettings.model_validate(EAGER)})
    topics: dict[str, Any] = {}

    def step(value: bytes, cluster: str, timestamp_ms: int, _headers: object, state: State) -> list[Output]:
        """Step the key; the query's own operator calls `reconcile`, too, so that both decide equally."""
        at, kept = message_context(), state.get_bytes(KEY)
        record = ObservedRecord(at.topic, at.partition, at.offset, timestamp_ms, value)
        before = None if kept is None else decode(kept)
        transition = reconcile(host, prefix, ("throttle", cluster), before, [record], timestamp_ms)
        if transition.key_state is not None:
            # Not packed as Spark's state is, because it is sent to no JVM.
            state.set_bytes(KEY, msgspec.msgpack.encode(transition.key_state))
        return list(transition.outputs)

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
