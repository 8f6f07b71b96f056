"""A part of the running application: works on its own thread until it is told to stop."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from policies.errors import UserError

Check = Callable[[], str | None]
"""Returns None if all is well, else a sentence that says what is wrong."""


@dataclass
class Part:
    """Something that runs until its stop event is set. Parts are stopped in the order of their list."""

    name: str
    run: Callable[[threading.Event], None]
    healthy: Check | None = None
    ready: Check | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def run_to_end(self) -> BaseException | None:
        """Run until it ends, and return the exception that ended it; None: it was told to stop."""
        try:
            self.run(self.stop)
        except BaseException as error:
            return error
        return None if self.stop.is_set() else UserError(f"The {self.name} ended by itself.")


def first_said(checks: Iterable[Check | None]) -> str | None:
    """Return the first problem that one of these checks reports; None: there is none."""
    return next((said for check in checks if check is not None and (said := check()) is not None), None)
