"""The small volume that the demo fills: a tmpfs where the system allows one, else a folder whose files are counted.

The tmpfs is mounted in a mount namespace that only this process and its children see. Linux allows that to root and, on
most machines, to everybody in a user namespace. Nothing has to be unmounted: the mounts end with the last process.
Standard library only, because namespaces must be entered before any thread is started.
"""

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

# Linux: include/uapi/linux/sched.h, mount.h
_CLONE_NEWNS, _CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x4000, 0x4_0000
_MNT_DETACH = 0x2

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
    """Give this process a mount namespace of its own; return False if the system does not allow it.

    Call it before any thread is started, because Linux refuses a process with several threads.
    """
    if sys.platform != "linux":
        return False
    # The first kind is enough for root. The second makes us root of a user namespace, which may be refused half way.
    # So a child process tries each kind first.
    for kind in (_CLONE_NEWNS, _CLONE_NEWNS | _CLONE_NEWUSER):
        if _is_allowed(kind):
            _enter(kind)
            return True
    return False


@contextmanager
def small_volume(folder: Path, total_bytes: int, *, mounts: bool) -> Iterator[DemoVolume]:
    """Create an empty volume of this size at `folder`: a disk if this process has private `mounts`, else a folder."""
    folder.mkdir()
    if not mounts:
        yield DemoVolume(folder, total_bytes, is_disk=False)
        return
    _mount(folder, total_bytes)
    try:
        yield DemoVolume(folder, total_bytes, is_disk=True)
    finally:
        # Detach lazily, because a process that is just ending may still have a file open there.
        _call("umount2", os.fsencode(folder), _MNT_DETACH)


def _is_allowed(kind: int) -> bool:
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        _enter(kind)
        folder = Path(mkdtemp(prefix="headgate-demo-"))
        try:
            _mount(folder, 1024 * 1024)
            _call("umount2", os.fsencode(folder), _MNT_DETACH)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except BaseException:
        os._exit(1)
    os._exit(0)


def _enter(kind: int) -> None:
    user, group = os.geteuid(), os.getegid()
    _call("unshare", kind)
    if kind & _CLONE_NEWUSER:
        # The user and group ids stay the same. Only the owner of a namespace may mount in it, and now we are its owner.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)


def _mount(folder: Path, total_bytes: int) -> None:
    options = f"size={total_bytes},mode=700".encode()
    _call("mount", b"headgate-demo", os.fsencode(folder), b"tmpfs", _MS_NOSUID | _MS_NODEV, options)


def _call(function: str, *arguments: object) -> None:
    """Call a function of the C library; raise its error as OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
