"""A fleet in virtual time, with collectors that read it at regular intervals.

A collector can fall silent, lag or fail; then the readings differ from the fleet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from policies.observations import Observation
from tests.policies.sessions.course import Run, health, node, session, tree, unread

SECONDS_BETWEEN = {"session": 5.0, "brokers": 5.0, "namespaces": 5.0, "health": 10.0}
AT_ONCE = dict.fromkeys(SECONDS_BETWEEN, 0.0)
"""When each collector reads first: all at once takes the fewest steps."""


@dataclass
class Broker:
    """The real state of one broker."""

    name: str
    state: str = "connected"
    number: int = 0
    registered: bool = True
    well: str = "ok"
    """The outcome of asking it for its health."""
    healthy: bool | None = True
    listed: bool | None = True

    @property
    def session(self) -> str:
        return f"0x{self.name}-{self.number}"


class World:
    """Brokers that have sessions and are registered, what they own, and the collectors that look at them."""

    def __init__(
        self, *names: str, timeout_s: float = 30.0, first_s: Mapping[str, float] = AT_ONCE, **settings: Any
    ) -> None:
        self.run = Run(**{"zombie_after": "3m", **settings})
        self.brokers = {name: Broker(name) for name in names}
        self.owners: dict[str, tuple[str, str]] = {}
        """By path: the broker that its node names, and the session it belongs to."""
        self.now = 0.0
        self.silent: set[str] = set()
        """Collectors that say nothing."""
        self.failing: set[str] = set()
        """Collectors that cannot read."""
        self.without_session: set[str] = set()
        """Brokers of whose sessions nothing is known."""
        self._timeout_ms = int(timeout_s * 1000)
        self._first_s, self._due = first_s, {**first_s}

    def own(self, name: str, *paths: str) -> "World":
        """Let a broker own bundles with its present session."""
        self.owners |= dict.fromkeys(paths, (name, self.brokers[name].session))
        return self

    def lose(self, *names: str, registered: bool = False) -> "World":
        """Let sessions expire, with the brokers' bundles and registrations."""
        for name in names:
            self.brokers[name].state = "expired"
            self.brokers[name].registered = registered
            gone = self.brokers[name].session
            self.owners = {path: owner for path, owner in self.owners.items() if owner[1] != gone}
        return self

    def cut(self, *names: str) -> "World":
        """Cut brokers off; their sessions do not expire yet."""
        for name in names:
            self.brokers[name].state = "disconnected"
        return self

    def back(self, *names: str, registered: bool = True) -> "World":
        """Give brokers new sessions."""
        for name in names:
            broker = self.brokers[name]
            broker.state, broker.number, broker.registered = "connected", broker.number + 1, registered
        return self

    def change(self, *names: str, **fields: Any) -> "World":
        """Change what is so of brokers."""
        for name in names:
            for field, value in fields.items():
                setattr(self.brokers[name], field, value)
        return self

    def fail(self, *kinds: str) -> "World":
        """Let these collectors alone be unable to read."""
        self.failing = set(kinds)
        return self

    def silence(self, *kinds: str) -> "World":
        """Let these collectors alone say nothing."""
        self.silent = set(kinds)
        return self

    def until(self, seconds: float) -> "World":
        """Let time pass while the collectors read."""
        while (moment := min(self._due.values())) <= seconds:
            kinds = [kind for kind, due in self._due.items() if due == moment]
            for kind in kinds:
                self._due[kind] = round(moment + SECONDS_BETWEEN[kind], 3)
            readings = [seen for kind in kinds if kind not in self.silent for seen in self._look(kind, moment)]
            if readings:
                self.run.together(*readings)
        self.now = seconds
        self.run.until(seconds)
        return self

    def restart_collectors(self, at: float) -> "World":
        """Stop all collectors and Headgate, and let them read again at a moment."""
        self.run.wake_at = None
        self._due = {kind: at + first for kind, first in self._first_s.items()}
        return self

    def _look(self, kind: str, at: float) -> Iterable[Observation]:
        everyone = self.brokers.values()
        if kind == "session":
            if kind in self.failing:
                return [unread(at)]
            read = (b for b in everyone if b.name not in self.without_session)
            told = [session(at, b.name, b.state, b.session, timeout_ms=self._timeout_ms) for b in read]
            return [session(at, None, None), *told]
        if kind == "brokers":
            nodes = [node(b.name, b.session, f"/loadbalance/brokers/{b.name}") for b in everyone if b.registered]
            return [tree(at, *nodes, name="/loadbalance/brokers", outcome=self._outcome(kind))]
        if kind == "namespaces":
            nodes = [node(owner, of, path) for path, (owner, of) in self.owners.items()]
            return [tree(at, *nodes, outcome=self._outcome(kind))]
        return [
            health(at, b.name, b.well, healthy=b.healthy if b.well == "ok" else None, listed=b.listed) for b in everyone
        ]

    def _outcome(self, kind: str) -> str:
        return "timeout" if kind in self.failing else "ok"

    def went_down(self) -> list[tuple[float, str, str]]:
        """(second, member, "verdict reason") of every shutdown and restart."""
        told = ((second, name, what) for name in self.brokers for second, what in self.run.told(name))
        return [each for each in told if each[2].split()[0] in ("shutdown", "restart")]

    def down(self) -> list[str]:
        """Every shutdown and restart, as "member verdict reason"."""
        return [f"{name} {what}" for _, name, what in self.went_down()]

    def last(self, name: str) -> str:
        """The last decision on a broker."""
        told = self.run.told(name)
        return told[-1][1] if told else ""

    def sentence(self, name: str) -> str:
        """The sentence of the last decision on a broker."""
        return next(d.explanation for d in reversed(self.run.sessions) if d.member == name)

    def fires(self, alert: str, name: str) -> bool:
        """Whether an alert about a member fires now."""
        return (alert, name) in self.run.firing()
