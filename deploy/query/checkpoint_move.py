"""Adjusts a checkpoint that was moved or restored to another folder.

Spark records the absolute path of the state's schema, and would go on looking for it in the old folder.
"""

import json
from pathlib import Path
from typing import Any

from policies.errors import UserError

_PATHS = "stateSchemaFilePaths"
_SCHEME = "file:"


def follow_move(folder: Path) -> bool:
    """Set such paths to where the files lie now; gives whether there was one to set.

    Args:
        folder: of the checkpoint.

    Raises:
        UserError: it cannot be written to.
    """
    try:
        notes = folder.glob("state/*/_metadata/v2/[0-9]*")
        return sum(_followed(folder.absolute(), note) for note in notes) > 0
    except OSError as error:
        raise UserError(f"{folder} cannot be written to ({error.strerror})") from None


def _followed(folder: Path, note: Path) -> bool:
    version, _, text = note.read_text().partition("\n")
    try:
        noted = json.loads(text)
        stores = noted["stateStoreInfo"]
        before = [store[_PATHS] for store in stores]
    except (ValueError, KeyError, TypeError):
        return False  # damaged, which is told elsewhere
    after = [[_now(folder, path) for path in paths] for paths in before]
    if after == before:
        return False
    for store, paths in zip(stores, after, strict=True):
        store[_PATHS] = paths
    _write(note, f"{version}\n{json.dumps(noted, separators=(',', ':'))}")
    return True


def _now(folder: Path, path: str) -> Any:
    """Where the file lies now; where it is not in this checkpoint either, the path stays as it is."""
    _, state, within = path.removeprefix(_SCHEME).rpartition("/state/")
    moved = folder / "state" / within
    return f"{_SCHEME}{moved}" if state and moved.is_file() else path


def _write(note: Path, text: str) -> None:
    """So that an interruption leaves the old or the new one; without the sum that was the old one's."""
    beside = note.with_name(f".{note.name}.moved")
    beside.write_text(text)
    beside.chmod(0o600)
    note.with_name(f".{note.name}.crc").unlink(missing_ok=True)
    beside.replace(note)
