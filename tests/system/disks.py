"""Small real disks for tests: tmpfs mounts of a given size, which fill up as a volume of a broker does."""

import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def _mount(path: Path, *, mebibytes: int) -> str | None:
    """Mount a tmpfs; returns the refusal, or None."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "headgate-test", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return None if result.returncode == 0 else f"mount refused: {result.stderr.strip()}"


def _unmount(path: Path) -> None:
    # Lazily: a process that is just ending may still have a file open there, and the test is over anyway.
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=True, timeout=30)
