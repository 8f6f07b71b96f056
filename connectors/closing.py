"""A base class for what must be closed: a context manager that closes at the end of the block."""

from types import TracebackType
from typing import Self


class Closing:
    """Makes a context manager of whatever has `close`."""

    def close(self) -> None:
        """Give back what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.close()
