"""Who carries one cluster's decisions out: turn by turn, one decision at a time."""

import threading
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Generic, Protocol

from connectors.actuation.standing import D, Standing


class Metrics(Protocol):
    """Where it is shown whether all is well."""

    def failing(self, cluster: str, *, yes: bool) -> None:
        """Whether something of a cluster cannot be carried out."""
        ...


def utc_now() -> datetime:
    """The time, for all that is not tested in a time of its own."""
    return datetime.now(UTC)


class Worker(ABC, Generic[D]):
    """Carries out one cluster's decisions, which come in by its `standing`. Use it from one thread."""

    def __init__(self, cluster: str, standing: Standing[D], metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self.standing = standing

    def run(self, stop: threading.Event) -> None:
        """Carry decisions out until `stop` is set (and there are news)."""
        try:
            while not stop.is_set():
                self.turn(stop)
                # The news that came with `stop` may have been taken in already.
                if not stop.is_set():
                    self.standing.news.wait(self.standing.pause_seconds())
        finally:
            self._close()

    def turn(self, stop: threading.Event) -> None:
        """Take in what has come, and try what is due."""
        self.standing.read()
        for decision in self.standing.due():
            if stop.is_set():
                return
            self._try(decision, stop)
        self._metrics.failing(self._cluster, yes=self.standing.failing)

    @abstractmethod
    def _try(self, decision: D, stop: threading.Event) -> None:
        """Carry one out, and settle or postpone it. Raises nothing: the next must find somebody at work."""

    @abstractmethod
    def _close(self) -> None:
        """Give up all connections."""

    def _nap(self, seconds: float) -> None:
        """Wait; news cut it short."""
        self.standing.news.wait(seconds)
