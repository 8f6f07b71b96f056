"""A component of the running application: it works on its own thread until its stop event is set.

Also what names in the settings stand for: objects of modules, and files.
"""

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from policies.units import UserError, human_bytes

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
        `failures` gets the exception that ended the run, or one if the component ended without `stop`.
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


@cache
def load_named(place: str, what: str) -> Any:
    """Return the object that is named as ``module:attribute``. Raises UserError if it cannot be loaded."""
    module, _, attribute = place.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # the module may be the user's
        raise UserError(
            f"{what} {place!r} cannot be loaded ({error}); it must be module:attribute, of a module that is installed "
            "beside Headgate or whose folder PYTHONPATH names"
        ) from error


# Reads files that a person names in a command or a setting: up to a bound, because a path may be wrong.

LIMIT_BYTES = 1_000_000
"""Settings of 500 clusters have a tenth of it; parsing this much YAML takes over a second of processor time."""


def read_named_file(file: Path, kind: str) -> bytes:
    """Return the content of a file or a pipe; `kind` names it in the error, with its article.

    Raises OSError if it cannot be read, UserError if it is larger than the limit.
    """
    with file.open("rb") as stream:
        content = stream.read(LIMIT_BYTES + 1)
        if len(content) > LIMIT_BYTES:
            size = os.fstat(stream.fileno()).st_size  # 0 for a pipe
            has = f"has {human_bytes(size)}" if size > LIMIT_BYTES else "is larger"
            raise UserError(f"{file}: {has}, and the limit for {kind} is {human_bytes(LIMIT_BYTES)}: name another file")
    return content
