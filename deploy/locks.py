"""Exclusive locks on files: a second process gets an error that names the holder. A lock ends with its process."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from policies.units import UserError


class InUseError(UserError):
    """Another process holds the lock."""


@contextmanager
def exclusive_lock(file: Path, what: str, remedy: str) -> Iterator[None]:
    """Hold the lock on a file, which is created if necessary, and whose content names this process.

    Raises InUseError if another process holds it: `what` begins the message, which ends with `remedy`.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = file.open("a+")
    except OSError as error:
        raise UserError(f"{file}: cannot be made ({error.strerror}): {remedy}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise InUseError(f"{what} process {lock.read().strip() or 'unknown'}: stop that one, or {remedy}") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        yield
