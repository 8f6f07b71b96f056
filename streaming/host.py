"""Hosts any registered policy: from records and remembered bytes to output records and bytes to remember.

Pure, and the same for the live query and for replay: only where records come from and where bytes are kept differs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import msgspec

from policies.observations import Observation, Reading
from policies.policy import Policy, PolicyKind, Step
from policies.registry import AUDIT, POLICIES, reading_types
from policies.settings import PolicySettings
from policies.units import from_millis, to_millis
from policies.wire import EventReader, audit_event, decision_event

_FORMAT = 1


class Output(NamedTuple):
    """A record to write. `topic` has no prefix yet."""

    topic: str
    key: str
    value: bytes


class Remembered(msgspec.Struct, array_like=True, frozen=True):
    """The one value kept per (policy, cluster)."""

    format: int
    state_version: int
    now_ms: int
    """The time of the last step: a clock that jumps back must not take the policy along."""
    wake_ms: int | None
    """When to step again without observations."""
    state: msgspec.Raw
    """The policy's own state, msgpack."""


class UnreadableStateError(Exception):
    """The checkpoint was written by a newer version; going on would forget what it knows."""


@dataclass(frozen=True)
class PolicyHost:
    """Steps policies by (policy, cluster).

    Args:
        settings: each policy's block; a policy without one runs with its defaults.
    """

    settings: Mapping[str, PolicySettings] = field(default_factory=dict)
    _policies: dict[tuple[str, str], Policy[Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def step(
        self,
        policy: str,
        cluster: str,
        remembered: Remembered | None,
        observations: Sequence[Observation],
        now: datetime,
    ) -> tuple[Remembered, Step[Any]]:
        """Step one policy for one cluster; `now` is held back to the last step's time if it lies before it."""
        kind = POLICIES[policy]
        state = None if remembered is None else _state_of(kind, remembered)
        if remembered is not None:
            now = max(now, from_millis(remembered.now_ms))
        step = self._policy(policy, cluster).step(state, observations, now)
        wake_ms = None if step.wake_at is None else to_millis(step.wake_at)
        encoded = msgspec.Raw(msgspec.msgpack.encode(step.state))
        return Remembered(_FORMAT, kind.state_version, to_millis(now), wake_ms, encoded), step

    def _policy(self, name: str, cluster: str) -> Policy[Any]:
        if (name, cluster) not in self._policies:
            kind = POLICIES[name]
            settings = self.settings.get(name) or kind.settings()
            self._policies[name, cluster] = kind.build(cluster, settings.for_cluster(cluster))
        return self._policies[name, cluster]


def outputs(step: Step[Any]) -> Iterator[Output]:
    """The records a step gives: decisions to their topics, and with the notes to the audit."""
    for decision in step.decisions:
        yield Output(decision.topic, decision.record_key(), decision_event(decision))
    for said in (*step.decisions, *step.notes):
        yield Output(AUDIT, said.cluster, audit_event(said))


@cache
def reading_reader() -> EventReader[Reading]:
    """Decodes observed records of every registered kind; built once a process."""
    return EventReader(reading_types())


def remember(remembered: Remembered) -> bytes:
    """Encode what is kept."""
    return msgspec.msgpack.encode(remembered)


def recall(value: bytes) -> Remembered:
    """Decode what was kept.

    Raises:
        UnreadableStateError: a newer version wrote it.
    """
    remembered = msgspec.msgpack.decode(value, type=Remembered)
    if remembered.format != _FORMAT:
        raise UnreadableStateError(f"state format {remembered.format} is newer than {_FORMAT}: use the newer headgate")
    return remembered


def _state_of(kind: PolicyKind, remembered: Remembered) -> Any:
    """The policy's state, upgraded step by step from the version that wrote it."""
    if remembered.state_version == kind.state_version:
        return msgspec.msgpack.decode(remembered.state, type=kind.state)
    if remembered.state_version > kind.state_version:
        raise UnreadableStateError(
            f"{kind.name}: state version {remembered.state_version} is newer than {kind.state_version}: "
            "use the newer headgate"
        )
    plain = msgspec.msgpack.decode(remembered.state)
    for version in range(remembered.state_version, kind.state_version):
        plain = kind.upgrades[version](plain)
    return msgspec.convert(plain, kind.state)
