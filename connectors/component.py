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

    def start(self, failures: list[BaseException], ended: threading.Event | None = None) -> threading.Thread:
        """Run on a thread of its own.

        The thread is a daemon: a second Ctrl-C ends the process at once, whatever the component is waiting for.

        Args:
            failures: gets the exception that ended the run, or one if the component ended without `stop`.
            ended: is set when the component has ended.
        """
        thread = threading.Thread(target=self._run, args=(failures, ended), name=self.name, daemon=True)
        thread.start()
        return thread

    def _run(self, failures: list[BaseException], ended: threading.Event | None) -> None:
        try:
            self.run(self.stop)
            if not self.stop.is_set():
                failures.append(UserError(f"The {self.name} ended by itself."))
        except BaseException as error:
            failures.append(error)
        if ended is not None:
            ended.set()


def first_problem(checks: Iterable[Check | None]) -> str | None:
    """Return the first problem that a check reports."""
    return next((problem for check in checks if check is not None and (problem := check()) is not None), None)
