"""A base class of context managers that call `close` at the end of the block."""

from types import TracebackType
from typing import Self


class Closing:
    """Subclasses define `close`."""

    def close(self) -> None:
        """Release the resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.close()
