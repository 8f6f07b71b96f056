"""Waiting until a first start has made its archives of classes: what comes later is what is measured."""

import time
from pathlib import Path

_LONGEST_SECONDS = 240
_LOOK_SECONDS = 0.5


def await_archives(data_dir: Path, count: int) -> None:
    """Return once there are so many; at once for a commit that makes none, or a machine that has no room for it."""
    folder, began = data_dir / "class-archives", time.monotonic()
    while any(folder.glob("*.classes")) and len([*folder.glob("*.jsa")]) < count:
        if time.monotonic() - began > _LONGEST_SECONDS:
            return
        time.sleep(_LOOK_SECONDS)
