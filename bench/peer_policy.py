"""The throttle policy as a peer of the query hosts it: one key's records and bytes in, records and bytes out.

`reconcile` is what the query's own operator calls, so all contenders decide alike. Imports what a peer's environment
has: msgspec and pydantic, neither Spark nor clients.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from policies.throttle import ThrottleSettings
from streaming.host import PolicyHost
from streaming.key_state import decode
from streaming.records import ObservedRecord, Output
from streaming.transition import reconcile
from tests.eager import EAGER

POLICY = "throttle"


class Hosted(NamedTuple):
    """What came of one key's records."""

    kept: bytes | None
    wake_ms: int | None
    """When the key is to be stepped without records."""
    outputs: tuple[Output, ...]


class HostedPolicy:
    """Throttle, for whatever clusters come."""

    def __init__(self, prefix: str) -> None:
        self._host = PolicyHost({POLICY: ThrottleSettings.model_validate(EAGER)})
        self._prefix = prefix

    def step(self, cluster: str, kept: bytes | None, records: Sequence[ObservedRecord], now_ms: int) -> Hosted:
        """Take the records of one cluster."""
        before = None if kept is None else decode(kept)
        transition = reconcile(self._host, self._prefix, (POLICY, cluster), before, records, now_ms)
        # Not packed, as Spark's state is: they have no JVM to send it to, nor what packs it.
        after = None if transition.key_state is None else msgspec.msgpack.encode(transition.key_state)
        return Hosted(after, transition.wake_ms, transition.outputs)
