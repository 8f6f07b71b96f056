"""A component of the running application: it works on its own thread until its stop event is set."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from policies.errors import UserError

Check = Callable[[], str | None]
"""Returns one sentence about the problem, or None."""


@dataclass
class Component:
    """The application stops its components in the order of their list."""

    name: str
    run: Callable[[threading.Event], None]
    healthy: Check | None = None
    ready: Check | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def run_to_end(self) -> BaseException | None:
        """Run, and return the exception that ended the run; None if the component ended because of `stop`."""
        try:
            self.run(self.stop)
        except BaseException as error:
            return error
        return None if self.stop.is_set() else UserError(f"The {self.name} ended by itself.")


def first_problem(checks: Iterable[Check | None]) -> str | None:
    """Return the first problem that a check reports."""
    return next((problem for check in checks if check is not None and (problem := check()) is not None), None)
