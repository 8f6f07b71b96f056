"""What a separate configuration store's session means: nothing while it is away, old caches when it is back."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.protocol.states import KazooState

from connectors.sessions.agent.session_tracker import ConfigurationStore


class Client:
    """In place of kazoo's: a test says how it stands."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[str], Any]] = []

    def add_listener(self, listener: Callable[[str], Any]) -> None:
        self.listeners.append(listener)

    def remove_listener(self, listener: Callable[[str], Any]) -> None:
        self.listeners.remove(listener)

    def become(self, *states: str) -> None:
        for state in states:
            for listener in self.listeners:
                listener(state)


UP, CUT_OFF, LOST = KazooState.CONNECTED, KazooState.SUSPENDED, KazooState.LOST


@pytest.mark.parametrize(
    ("states", "returns"),
    [
        ((), 0),
        ((UP,), 0),
        ((UP, CUT_OFF), 0),
        ((UP, CUT_OFF, UP), 1),
        ((UP, CUT_OFF, LOST, UP), 1),
        ((UP, CUT_OFF, UP, CUT_OFF, LOST, UP), 2),
        ((UP, CUT_OFF, UP, UP), 1),
    ],
)
def test_a_return_is_told_once(states: tuple[str, ...], returns: int) -> None:
    client = Client()
    told: list[None] = []
    store = ConfigurationStore(client, lambda: told.append(None))
    store.start()
    client.become(*states)
    assert len(told) == returns
    store.close()
    client.become(CUT_OFF, UP)
    assert len(told) == returns
