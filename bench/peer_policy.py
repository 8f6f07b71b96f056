"""The throttle policy as a peer of the query hosts it: one key's records and bytes in, records and bytes out.

The query's own operator calls `reconcile`, too, so all contenders decide equally. It imports only packages of a peer's
environment: msgspec and pydantic, but neither Spark nor clients.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from policies.throttle import ThrottleSettings
from policies.wire import ObservedRecord, Output
from streaming.host import PolicyHost
from streaming.key_state import decode
from streaming.operator import reconcile
from tests.eager import EAGER

POLICY = "throttle"


class Hosted(NamedTuple):
    """The result of stepping one key."""

    kept: bytes | None
    wake_ms: int | None
    """When to step the key without records."""
    outputs: tuple[Output, ...]


class HostedPolicy:
    """The throttle policy for all clusters."""

    def __init__(self, prefix: str) -> None:
        self._host = PolicyHost({POLICY: ThrottleSettings.model_validate(EAGER)})
        self._prefix = prefix

    def step(self, cluster: str, kept: bytes | None, records: Sequence[ObservedRecord], now_ms: int) -> Hosted:
        """Step the policy with the records of one cluster."""
        before = None if kept is None else decode(kept)
        transition = reconcile(self._host, self._prefix, (POLICY, cluster), before, records, now_ms)
        # Not packed as Spark's state is, because the peers send it to no JVM.
        after = None if transition.key_state is None else msgspec.msgpack.encode(transition.key_state)
        return Hosted(after, transition.wake_ms, transition.outputs)
