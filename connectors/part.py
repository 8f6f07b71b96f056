"""A part of the running application: something that works on a thread of its own until it is told to stop."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

Check = Callable[[], str | None]
"""None when fine, else a sentence that says what is wrong."""


@dataclass
class Part:
    """Something that runs until its event is set. Parts are stopped in the order they stand in."""

    name: str
    run: Callable[[threading.Event], None]
    healthy: Check | None = None
    ready: Check | None = None
    stop: threading.Event = field(default_factory=threading.Event)
