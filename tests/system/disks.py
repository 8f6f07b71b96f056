"""Small real disks for tests: tmpfs mounts of a given size, which fill up as a volume of a broker does."""

import os
import platform
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self


def why_not_mountable() -> str | None:
    """Why this machine cannot mount a tmpfs, as the reason to skip a test; None if it can."""
    if platform.system() != "Linux":
        return "tmpfs mounts need Linux"
    if os.geteuid() != 0:
        return "tmpfs mounts need root"
    with tempfile.TemporaryDirectory() as folder:
        refusal = _mount(Path(folder), mebibytes=1)
        if refusal is None:
            _unmount(Path(folder))
    return refusal


@contextmanager
def small_disk(path: Path, *, mebibytes: int) -> Iterator[Path]:
    """Mount an empty tmpfs of this size at `path` during the block.

    Raises:
        OSError: the mount is refused; call `why_not_mountable` first.
    """
    path.mkdir(parents=True, exist_ok=True)
    refusal = _mount(path, mebibytes=mebibytes)
    if refusal is not None:
        raise OSError(refusal)
    try:
        yield path
    finally:
        _unmount(path)


class Intruder:
    """Writes to a disk from entering to `stop`, and no limit of Headgate slows it down; its file is deleted at last."""

    def __init__(self, disk: Path, bytes_per_second: int) -> None:
        self._file = disk / "intruder"
        self._bytes_per_second = bytes_per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="intruder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._file.unlink()

    def stop(self) -> None:
        """Write no more."""
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        began, written = time.monotonic(), 0
        with self._file.open("wb", buffering=0) as file:
            while not self._stop.wait(0.1):
                due = int((time.monotonic() - began) * self._bytes_per_second)
                file.write(bytes(due - written))
                written = due


def _mount(path: Path, *, mebibytes: int) -> str | None:
    """Mount a tmpfs; returns the refusal, or None."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "headgate-test", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return None if result.returncode == 0 else f"mount refused: {result.stderr.strip()}"


def _unmount(path: Path) -> None:
    # Lazily: a process that is just ending may still have a file open there, and the test is over anyway.
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=True, timeout=30)
