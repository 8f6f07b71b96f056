"""Installs a project by its own pyproject.toml, as `pip install` does, into a folder of the test."""

import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

TOY = Path(__file__).parent / "toy" / "package"


def install(project: Path, folder: Path) -> Path:
    """Build the project's wheel and unpack it; the folder that is returned belongs on the path of Python."""
    (wheel,) = WheelBuilder(str(project)).build(directory=str(folder / "dist"), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site-packages")
    return folder / "site-packages"
