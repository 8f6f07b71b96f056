"""The stored state of a key with its heartbeat and the effective times of its records, and its encoding."""

import struct
from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from policies.book import Book
from policies.decisions import CLOCKS_APART, Issuer, Standing, StandingReason, StandingVerdict, next_sequence
from policies.pauses import PolicyPause, describe
from policies.policy import PolicyKind
from policies.units import InstantMs, from_millis, millis_of
from policies.wire import ObservedRecord, Output, decision_event
from streaming.dead_letters import DeadLetterCounts

# The heartbeat of a policy: each minute it confirms that the policy still watches a cluster.
#
# A decision about a member or a namespace may stand for months without a successor, so its age proves nothing. When
# the policy no longer watches the cluster, the heartbeat expires within minutes, and every consumer sees that.

INTERVAL_MS = 60_000
VALIDITY = timedelta(minutes=3)


class LastHeartbeat(Struct, array_like=True, frozen=True):
    """When the last heartbeat was published, and its sequence; 0: never."""

    at_ms: int = 0
    sequence: int = 0
    quiet: PolicyPause | None = None
    """The pause that it named, if any."""

    @property
    def due_ms(self) -> int:
        """When the next one is due: at whole minutes, so that all clusters share a batch."""
        return (self.at_ms // INTERVAL_MS + 1) * INTERVAL_MS

    def is_due(self, now_ms: int, quiet: PolicyPause | None = None) -> bool:
        """Whether to publish one now: its minute has passed, it lies in the future, or `quiet` has changed."""
        return self.quiet != quiet or not self.at_ms <= now_ms < self.due_ms


def emit_heartbeat(
    issuer: Issuer, before: LastHeartbeat, now_ms: int, quiet: PolicyPause | None = None
) -> tuple[LastHeartbeat, Output]:
    """Make the heartbeat for the next minutes; it names the pause `quiet`, if one is in force."""
    sequence = next_sequence(before.sequence, now_ms, is_first=before.sequence == 0)
    now, subject = from_millis(now_ms), f"{issuer.policy}/{issuer.cluster}"
    heartbeat = Standing(
        **issuer.header(subject, sequence, now, about=("standing",)),
        verdict=StandingVerdict.STANDS,
        reason=StandingReason.WATCHED if quiet is None else StandingReason.ONLY_WATCHED,
        explanation=(
            f"Policy {issuer.policy} watches {issuer.cluster}: what it decided last stands"
            if quiet is None
            else describe(quiet, issuer.policy, issuer.cluster)
        ),
        valid_until=now + VALIDITY,
        quiet_until=None if quiet is None else from_millis(quiet.until_ms),
        paused_by=None if quiet is None else quiet.actor,
        pause_reason=None if quiet is None else quiet.reason,
        pause_keeps=None if quiet is None else quiet.keeps,
    )
    after = LastHeartbeat(now_ms, sequence, quiet)
    return after, Output(Standing.topic, heartbeat.record_key(), decision_event(heartbeat))


# The effective time of an observation: its append time, unless the order of offsets proves that wrong.
#
# Offsets of a partition grow in the order of appending and depend on no clock. So of two records the one with the
# higher offset is newer, whatever their times are; times that tie or run backwards are moved up. Everything in a
# batch was appended before the batch was made, so no effective time lies after it, even if a broker's clock is an
# hour ahead.
#
# Invariant: within a partition, times grow with offsets, up to `FARTHEST_MS` after the batch.

CLOCK_JUMP_MS = millis_of(CLOCKS_APART)
FARTHEST_MS = 60_000
"""Where thousands of times tie, an effective time may lie this far after its batch."""
_AFTER_BATCH_MS = 1000
"""A batch takes in records that are appended while it is planned."""
_MOST_POSITIONS = 64


class ReadPosition(Struct, array_like=True, frozen=True):
    """The last record of a partition that was read for a key, and its effective time."""

    topic: str
    partition: int
    offset: int
    at_ms: InstantMs


class Order:
    """Determines the effective times of one key's observations, from the positions on that the last batch left."""

    def __init__(self, positions: Iterable[ReadPosition], now_ms: int) -> None:
        self._now_ms = now_ms
        self._positions = {(each.topic, each.partition): each for each in positions}

    def effective_ms(self, record: ObservedRecord) -> int:
        """Return the observation's effective time; call it for the records of a partition in the order of offsets."""
        key = (record.topic, record.partition)
        last, claimed_ms = self._positions.get(key), min(record.appended_ms, self._now_ms + _AFTER_BATCH_MS)
        at_ms = claimed_ms
        if last is not None and record.offset > last.offset and claimed_ms <= last.at_ms:
            # Further back than clocks differ: its time says nothing, but it is newer than the record before it.
            has_jumped = claimed_ms < last.at_ms - CLOCK_JUMP_MS
            at_ms = min(max(last.at_ms + 1, self._now_ms if has_jumped else 0), self._now_ms + FARTHEST_MS)
        self._positions[key] = ReadPosition(record.topic, record.partition, record.offset, at_ms)
        return at_ms

    def positions(self) -> tuple[ReadPosition, ...]:
        """The positions to store: the most recent ones."""
        latest = sorted(self._positions.values(), key=lambda each: (each.at_ms, each.topic, each.partition))
        return tuple(latest[-_MOST_POSITIONS:])


FORMAT = 1
NO_STATE = msgspec.Raw(b"\xc0")
"""None as msgpack."""

_COMPRESSED, _HEAD = 0xC1, struct.Struct(">BI")
"""Before compressed bytes: a byte with which no msgpack begins, and their decompressed size."""


class Refusal(msgspec.Struct, array_like=True, frozen=True):
    """The last readings that a key refused, for an alert that stays for a while: one reading may come every minute."""

    alert: str
    """The name of the alert."""
    at_ms: InstantMs
    why: str


class KeyState(msgspec.Struct, array_like=True, frozen=True):
    """The one value stored per (policy, cluster)."""

    format: int
    state_version: int
    now_ms: int
    """The time of the last step: a clock that is set back must not take the policy along."""
    wake_ms: int | None
    """When to step again without observations."""
    state: msgspec.Raw
    """The policy's own state as msgpack; None before its first step."""
    failures: int = 0
    """Steps in a row that failed."""
    letters: DeadLetterCounts = DeadLetterCounts()
    """The dead letters of the key's records."""
    positions: tuple[ReadPosition, ...] = ()
    """How far each partition was read for this key."""
    last_heartbeat: LastHeartbeat = LastHeartbeat()
    pause: PolicyPause | None = None
    """Set while an operator has paused this policy."""
    refusals: tuple[Refusal, ...] = ()
    """The recent refusals of readings that had no fault of their own, by alert."""
    book: Book = Book()
    """The last publications about the cluster, and the alerts about the policy itself."""

    @property
    def has_stepped(self) -> bool:
        """Whether the policy has ever been stepped; a key that received only bad records has not."""
        return self.now_ms > 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not (self.has_stepped or self.letters.kinds or self.pause or self.book.alerts.recovered)


NEVER_STEPPED = KeyState(FORMAT, 0, 0, None, NO_STATE)
"""The state of a key that has never been stepped."""


def begin_again(kind: PolicyKind, before: KeyState, now_ms: int) -> KeyState:
    """Return the state of a key after the clock was set back by more than clocks differ.

    What the policy knew by the later time is dropped, as if its checkpoint were lost: a hold or a grace would last
    until that time comes. Its pause, its sequences and the alerts that fire stay. A policy whose state
    cannot be read again keeps it (`PolicyKind.limit_instants`).
    """
    state = decode_policy_state(kind, before)
    if kind.limit_instants is not None and state is not None:
        kept = msgspec.Raw(msgspec.msgpack.encode(kind.limit_instants(state, now_ms)))
        return msgspec.structs.replace(
            before, state_version=kind.state_version, now_ms=now_ms, wake_ms=now_ms, state=kept, positions=(),
            refusals=(), book=msgspec.structs.replace(before.book, alerts=before.book.alerts.limit_instants(now_ms)),
        )  # fmt: skip
    book = before.book.begin_again(now_ms)
    return msgspec.structs.replace(NEVER_STEPPED, last_heartbeat=before.last_heartbeat, pause=before.pause, book=book)


class UnreadableStateError(Exception):
    """Another version or build wrote the checkpoint; going on would lose its state."""


_RESET = "use the headgate that wrote it, or start again with `headgate checkpoint reset`, which lists the losses"


def encode(state: KeyState) -> bytes:
    """Encode a state; equal states give equal bytes.

    Its msgpack is compressed where that makes it smaller: Spark's JVM and the checkpoint handle each byte several
    times. LZ4 reduces a cluster of 30 brokers to a sixth (regular readings) or a half (random digits) in hundredths of
    a millisecond.
    """
    plain = msgspec.msgpack.encode(state)
    small: bytes = _lz4().compress(plain, asbytes=True)
    return _HEAD.pack(_COMPRESSED, len(plain)) + small if _HEAD.size + len(small) < len(plain) else plain


def decode(value: bytes) -> KeyState:
    """Decode a stored state; raises UnreadableStateError if another version or build wrote it."""
    if value[0] == _COMPRESSED:
        value = _lz4().decompress(value[_HEAD.size :], _HEAD.unpack_from(value)[1], asbytes=True)
    try:
        state = msgspec.msgpack.decode(value, type=KeyState)
    except msgspec.DecodeError as error:
        raise UnreadableStateError(f"a stored state has another build's form ({error}): {_RESET}") from None
    if state.format != FORMAT:
        raise UnreadableStateError(f"state format {state.format} is newer than {FORMAT}: use the newer headgate")
    return state


def decode_policy_state(kind: PolicyKind, state: KeyState) -> Any:
    """Decode the policy's own state, upgraded step by step from the version that wrote it.

    Raises UnreadableStateError if a newer version, or another build of this one, wrote it.
    """
    if bytes(state.state) == bytes(NO_STATE):
        return None
    if state.state_version == kind.state_version:
        try:
            return msgspec.msgpack.decode(state.state, type=kind.state)
        except msgspec.DecodeError as error:
            raise UnreadableStateError(
                f"{kind.name}: a stored state has another build's form ({error}): {_RESET}"
            ) from None
    if state.state_version > kind.state_version:
        raise UnreadableStateError(
            f"{kind.name}: state version {state.state_version} is newer than {kind.state_version}: "
            "use the newer headgate"
        )
    plain = msgspec.msgpack.decode(state.state)
    for version in range(state.state_version, kind.state_version):
        plain = kind.upgrades[version](plain)
    return msgspec.convert(plain, kind.state)


@cache
def _lz4() -> Any:
    import pyarrow  # loading it takes 0.2 s, which a command that only reads settings need not wait for

    return pyarrow.Codec("lz4_raw")
