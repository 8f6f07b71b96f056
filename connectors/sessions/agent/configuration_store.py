"""A configuration store that is separate from the ownership store: what its session means to a member."""

from collections.abc import Callable

import structlog
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

_log = structlog.get_logger(__name__)


class ConfigurationStore:
    """Follows the session to a separate configuration store.

    Policies and the like are read there, and nothing is owned; so its loss is no loss of ownership. But changes may
    have been missed until there is a connection again.

    Args:
        client: of kazoo; the application starts and stops it.
        on_return: called from kazoo's thread when there is a connection again; must not block.
    """

    def __init__(self, client: KazooClient, on_return: Callable[[], None]) -> None:
        self._client = client
        self._on_return = on_return
        self._is_away = False

    def start(self) -> None:
        """Begin; a client that has not connected yet is not away."""
        self._client.add_listener(self._on_state)

    def close(self) -> None:
        """End."""
        self._client.remove_listener(self._on_state)

    def _on_state(self, state: str) -> None:
        if state != KazooState.CONNECTED:
            self._is_away = True
            _log.info("configuration store", state=state)
        elif self._is_away:
            self._is_away = False
            _log.info("configuration store", state=state)
            self._on_return()
