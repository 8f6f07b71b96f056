"""An exclusive lock on the checkpoint's folder: a second process gets an error that names the holder.

The lock is a file lock, which ends with its process. It works on one machine, and on several machines that share the
folder through a file system with locks (NFS 4, CephFS). Which process may decide at all is settled by the consumer
group of the checkpoint's queries (`connectors.partitions`). This lock only prevents a process from starting while a
predecessor that is stopping, or frozen, still holds the checkpoint.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

from deploy.locks import InUseError, exclusive_lock

if TYPE_CHECKING:
    from deploy.settings.application import Settings

_AGAIN_SECONDS = 0.2

_log = structlog.get_logger(__name__)


@contextmanager
def sole_query(settings: "Settings") -> Iterator[None]:
    """Hold the lock on a checkpoint, because two queries would overwrite each other's state.

    If the checkpoint is remote, the lock is on this data folder.

    Raises:
        InUseError: another process holds the lock.
        UserError: the lock cannot be made.
    """
    place, data = settings.checkpoint(), settings.create_data_dir()
    folder = place.folder
    elsewhere = data / "locks" / f"{quote(place.uri, safe='')[-200:]}.lock"
    lock = elsewhere if folder is None else folder.with_name(f"{folder.name}.lock")
    what = f"the checkpoint {folder or place.uri} is in use by another query,"
    with exclusive_lock(lock, what, "set another stream.checkpoint_dir"):
        yield


@contextmanager
def sole_query_in_turn(settings: "Settings", stop: threading.Event) -> Iterator[bool]:
    """Wait until the present holder has released the lock, and hold it; yield False if `stop` was set before."""
    with ExitStack() as stack:
        told = ""
        while not stop.is_set():
            try:
                stack.enter_context(sole_query(settings))
            except InUseError as error:
                if (said := str(error)) != told:
                    _log.warning("waiting until the previous query has ended", detail=said)
                told = said
                stop.wait(_AGAIN_SECONDS)
            else:
                break
        yield not stop.is_set()
