"""The small volume that the demo fills: a tmpfs where the system allows one, else a folder whose files are counted.

The tmpfs is mounted in a mount namespace that only this process and its children see. Linux allows that to root and, on
most machines, to everybody in a user namespace. Nothing has to be unmounted: the mounts end with the last process.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from policies.units import without_settings

_INSIDE = "HEADGATE_DEMO_MOUNTS"
"""Set in the environment of the command that was started again with mounts of its own."""
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's own block size is."""


@dataclass(frozen=True)
class DemoVolume:
    """The volume on which the demo's broker keeps its data."""

    folder: Path
    total_bytes: int
    is_disk: bool
    """True for a file system of its own; otherwise the sizes of the folder's files are added up."""

    def free_bytes(self) -> int:
        """Return the free space, at least 0."""
        if self.is_disk:
            found = os.statvfs(self.folder)
            return found.f_bavail * found.f_frsize
        used = 0
        for path, _, files in os.walk(self.folder):
            for file in files:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    used += (Path(path) / file).stat().st_blocks * _BLOCK_BYTES
        return max(0, self.total_bytes - used)


def enter_private_mounts() -> bool:
    """Execute this command again in a mount namespace of its own; return False if the system allows none.

    In the command that was executed so, return True.
    """
    if os.environ.pop(_INSIDE, None):
        return True
    for options in ((), ("--map-root-user",)):  # an ordinary user may mount as root of a user namespace
        unshare = ["unshare", "--mount", *options]
        trial = ["mount", "-t", "tmpfs", "headgate-demo", tempfile.gettempdir()]
        with suppress(OSError):  # this system has no such program
            tried = subprocess.run(
                [*unshare, *trial], capture_output=True, check=False, env=without_settings(os.environ)
            )
            if tried.returncode == 0:
                os.environ[_INSIDE] = "1"
                os.execvp(unshare[0], [*unshare, sys.executable, *sys.orig_argv[1:]])
    return False


@contextmanager
def small_volume(folder: Path, total_bytes: int, *, mounts: bool) -> Iterator[DemoVolume]:
    """Create an empty volume of this size at `folder`: a disk if this process has private `mounts`, else a folder."""
    folder.mkdir()
    if mounts:
        options = f"size={total_bytes},mode=700,nosuid,nodev"
        mount = ["mount", "-t", "tmpfs", "-o", options, "headgate-demo", str(folder)]
        subprocess.run(mount, check=True, env=without_settings(os.environ))
    try:
        yield DemoVolume(folder, total_bytes, is_disk=mounts)
    finally:
        if mounts:  # lazily, because a process that is just ending may still have a file open there
            subprocess.run(["umount", "--lazy", folder], check=True, env=without_settings(os.environ))
