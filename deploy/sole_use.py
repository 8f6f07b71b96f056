"""One process at a time: who comes second is told who was first, and ends.

A lock on a file, which goes with its process whatever ends it. It holds on one machine, and on others that share the
folder by a file system with locks (NFS 4, CephFS).
"""

import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

from deploy.settings import Settings
from policies.errors import UserError


@contextmanager
def sole_query(settings: Settings) -> Iterator[None]:
    """Be the only query on a checkpoint: two would overwrite each other's state.

    Raises:
        UserError: another process has it.
    """
    checkpoint = settings.checkpoint_dir()
    settings.made_data_dir()
    with _sole(
        checkpoint.with_name(f"{checkpoint.name}.lock"),
        f"the checkpoint {checkpoint} is in use by another query",
        "stop that one, or set another stream.checkpoint_dir",
    ):
        yield


@contextmanager
def sole_actuators(settings: Settings, clusters: Sequence[str]) -> Iterator[None]:
    """Be the only actuators of these clusters: two would carry each decision out twice, and undo each other's work.

    Raises:
        UserError: another process has one of them.
    """
    folder = settings.made_data_dir() / "locks"
    with ExitStack() as stack:
        for cluster in clusters:
            what = f"what is decided about {cluster} is carried out by another process"
            file = folder / f"act-{quote(cluster, safe='')}.lock"
            stack.enter_context(_sole(file, what, "stop that one, or leave the cluster out here"))
        yield


@contextmanager
def _sole(file: Path, what: str, remedy: str) -> Iterator[None]:
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
            holder = lock.read().strip() or "unknown"
            raise UserError(f"{what}, process {holder}: {remedy}") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        yield
