"""All bundles of one agent, for its own thread, the application's, and kazoo's."""

import threading
from collections.abc import Iterable

from kazoo.protocol.states import EventType

from connectors.ownership.holding import Holding, Stage

LIVE = (Stage.WANTED, Stage.OWNED)


class Holdings:
    """Bundles by path. Whoever reads or changes one that is in here holds `lock`, for a moment only."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._by_path: dict[str, Holding] = {}

    def get(self, path: str) -> Holding | None:
        """The bundle of that path."""
        return self._by_path.get(path)

    def add(self, holding: Holding) -> None:
        """One more."""
        with self.lock:
            self._by_path[holding.path] = holding

    def remove(self, holding: Holding) -> None:
        """One less."""
        with self.lock:
            self._by_path.pop(holding.path, None)

    def of(self, stages: Iterable[Stage]) -> list[Holding]:
        """Those that stand so, in the order they were claimed."""
        wanted = tuple(stages)
        with self.lock:
            return [holding for holding in self._by_path.values() if holding.stage in wanted]

    def next_due(self) -> float | None:
        """When something is to be done about any of them."""
        with self.lock:
            return min((holding.due for holding in self._by_path.values()), default=None)

    def new_session(self) -> None:
        """None is known to be owned in the present session."""
        with self.lock:
            for holding in self._by_path.values():
                if holding.stage in LIVE:
                    holding.lose()

    def look_again(self, stages: Iterable[Stage] = LIVE) -> None:
        """The connection was away, or somebody has something new to say."""
        wanted = tuple(stages)
        with self.lock:
            for holding in self._by_path.values():
                if holding.stage in wanted:
                    holding.look.due, holding.ruling = 0.0, None

    def suspect(self, holding: Holding, session: str, *, taken: bool) -> None:
        """It was seen in a new session of ours; where another has taken it, it is not served from here on."""
        with self.lock:
            if holding.stage is Stage.OWNED and holding.session != session:
                holding.lose()
            if taken and holding.stage is Stage.WANTED:
                holding.suspected = True

    def changed(self, path: str, event: str) -> bool:
        """Something happened to a node, as its watch tells; never blocks for long.

        Returns:
            Whether somebody has to look.
        """
        with self.lock:
            holding = self._by_path.get(path)
            if holding is None or holding.stage not in LIVE:
                return False
            holding.changes += 1
            holding.look.due, holding.ruling = 0.0, None
            if event == EventType.CREATED and holding.stage is Stage.WANTED and not holding.writing:
                holding.suspected = True  # whose it is will be seen when it is read; until then it may be another's
            if event == EventType.DELETED and holding.stage is Stage.OWNED:
                holding.lose()
            return True
