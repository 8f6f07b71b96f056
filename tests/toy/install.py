"""Installs the toy package by its own pyproject.toml, as `pip install` does, into a folder of the test."""

import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

_PACKAGE = Path(__file__).parent / "package"


def install_toy(folder: Path) -> Path:
    """Build the package's wheel and unpack it; the folder that is returned belongs on the path of Python."""
    (wheel,) = WheelBuilder(str(_PACKAGE)).build(directory=str(folder / "dist"), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site-packages")
    return folder / "site-packages"
