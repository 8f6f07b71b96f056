"""The version of Headgate."""

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("headgate")
    except PackageNotFoundError:  # a tree that nobody installed
        return "unknown"


VERSION = _version()
"""As in `pyproject.toml`."""
