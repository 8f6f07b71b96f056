"""A folder for what Spark needs only while it runs: sockets, native libraries, copies of state.

A killed process removes nothing. So everything is in one folder, and the next start on the same data removes what dead
processes left; a lock, which ends with its process, tells them from live ones.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK = "lock"


class Scratch:
    """A new folder that only our own user can look into; `close` removes it.

    Args:
        parent: where it is made, beside those of other runs; made if need be.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(mode=0o700, exist_ok=True)
        with _locked(parent):
            _remove_abandoned(parent)
            self.path = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
            self._lock = (self.path / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove it; harmless when it has gone."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


@contextmanager
def _locked(parent: Path) -> Iterator[None]:
    with (parent / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob("run-*"):
        try:
            with (folder / _LOCK).open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError:  # it was killed before it had a lock: nobody else is here now
            pass
        shutil.rmtree(folder, ignore_errors=True)
