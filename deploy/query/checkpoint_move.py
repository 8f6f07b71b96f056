"""Adjusts a checkpoint that was moved or restored to another folder.

Spark records the absolute path of the state's schema, and would look for it in the old folder.
"""

import json
from pathlib import Path
from typing import Any

from policies.errors import UserError

_PATHS = "stateSchemaFilePaths"
_SCHEME = "file:"


def follow_move(folder: Path) -> bool:
    """Change such paths to the present folder; return whether there was one to change.

    Raises:
        UserError: the folder cannot be written to.
    """
    try:
        notes = folder.glob("state/*/_metadata/v2/[0-9]*")
        return sum(_follow_path(folder.absolute(), note) for note in notes) > 0
    except OSError as error:
        raise UserError(f"{folder} cannot be written to ({error.strerror})") from None


def _follow_path(folder: Path, note: Path) -> bool:
    version, _, text = note.read_text().partition("\n")
    try:
        noted = json.loads(text)
        stores = noted["stateStoreInfo"]
        before = [store[_PATHS] for store in stores]
    except (ValueError, KeyError, TypeError):
        return False  # damaged, which the checks of the checkpoint report
    after = [[_present_path(folder, path) for path in paths] for paths in before]
    if after == before:
        return False
    for store, paths in zip(stores, after, strict=True):
        store[_PATHS] = paths
    _write(note, f"{version}\n{json.dumps(noted, separators=(',', ':'))}")
    return True


def _present_path(folder: Path, path: str) -> Any:
    """Return the file's present path; the old path if this checkpoint does not contain the file."""
    _, state, within = path.removeprefix(_SCHEME).rpartition("/state/")
    moved = folder / "state" / within
    return f"{_SCHEME}{moved}" if state and moved.is_file() else path


def _write(note: Path, text: str) -> None:
    """Write atomically, so that an interruption leaves the old or the new file; remove the checksum of the old one."""
    beside = note.with_name(f".{note.name}.moved")
    beside.write_text(text)
    beside.chmod(0o600)
    note.with_name(f".{note.name}.crc").unlink(missing_ok=True)
    beside.replace(note)
