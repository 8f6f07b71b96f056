"""The default folders of Headgate's files."""

import os
from pathlib import Path

from policies.units import UserError


def user_folder(variable: str, in_home: str) -> Path:
    """Return `headgate` in the folder that a variable of XDG names, or in a folder of the user's home.

    Raises UserError if the variable is not set, and the user has no home, as is usual in a container.
    """
    try:
        return Path(os.environ.get(variable) or Path.home() / in_home) / "headgate"
    except RuntimeError:
        raise UserError(f"this user has no home folder: set HOME, {variable}, or data_dir and jars_dir") from None


def default_cache_dir() -> Path:
    """Return the default folder for jars: `headgate/jars` in `$XDG_CACHE_HOME` or in `~/.cache`."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "jars"
