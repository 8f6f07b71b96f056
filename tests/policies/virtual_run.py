"""A policy in virtual time: it steps at each reading, and at each `wake_at` in between, as a replay does."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, Self, TypeVar

import msgspec

from policies.alerts import Sender
from policies.book import Book, Published, publish
from policies.decisions import Alert, Decision
from policies.observations import Observation
from policies.policy import Policy
from policies.registry import POLICIES

State = TypeVar("State")

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def second_of(decision: Decision) -> float:
    return (decision.decided_at - START).total_seconds()


def merge(*blocks: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Settings from blocks as they stand in the file; later ones win."""
    return {name: value for block in (*blocks, more) for name, value in block.items()}


class Kept(NamedTuple):
    """What the host keeps of a key."""

    state: Any
    book: Book = Book()

    def stored(self) -> "Kept":
        """The same after a trip through the store."""
        state, book = (msgspec.msgpack.decode(msgspec.msgpack.encode(each), type=type(each)) for each in self)
        return Kept(state, book)


NEVER_STEPPED = Kept(None)


def step_hosted(
    policy: Policy[State], kept: Kept, observations: Sequence[Observation], now: datetime
) -> tuple[Kept, Published[State]]:
    """Step a policy, and publish its levels as the host does."""
    step, known = policy.step(kept.state, observations, now), vars(policy)
    sender = Sender.build(policy.name, known["_cluster"], known["_settings"], POLICIES[policy.name].many)
    book, published = publish(kept.book, step, now, sender)
    return Kept(published.state, book), published


class VirtualRun(Generic[State]):
    """Steps a policy, and stores its state, steps and decisions."""

    def __init__(self, policy: Policy[State], state: State | None = None) -> None:
        self.policy = policy
        self.state = state
        self.book = Book()
        self.steps: list[tuple[datetime, Published[State]]] = []
        self.wake_at: datetime | None = None
        self.published: list[Decision] = []

    def see(self, *observations: Observation, seconds: float | None = None) -> Self:
        return self.together(*observations, seconds=seconds)

    def together(self, *observations: Observation, seconds: float | None = None) -> Self:
        """Run the clock to the newest of the observations (or the given second), then step with all of them."""
        now = at(seconds) if seconds is not None else max(o.at for o in observations)
        self._wake_until(now)
        self.step(observations, now)
        return self

    def feed(self, observations: Iterable[Observation]) -> Self:
        """See each observation in its own step."""
        for observation in observations:
            self.together(observation)
        return self

    def until(self, seconds: float) -> Self:
        """Run the clock on, stepping only where the policy asked to be woken (that second included)."""
        self._wake_until(at(seconds) + timedelta(milliseconds=1))
        return self

    def step(self, observations: Sequence[Observation], now: datetime) -> Published[State]:
        (_, self.book), step = step_hosted(self.policy, Kept(self.state, self.book), observations, now)
        assert step.wake_at is None or step.wake_at > now
        self.state, self.wake_at = step.state, step.wake_at
        self.steps.append((now, step))
        self.published.extend(step.decisions)
        return step

    def _wake_until(self, now: datetime) -> None:
        while self.wake_at is not None and self.wake_at < now:
            self.step((), self.wake_at)

    @property
    def known(self) -> State:
        assert self.state is not None
        return self.state

    @property
    def alerts(self) -> list[Alert]:
        return [d for d in self.published if isinstance(d, Alert)]
