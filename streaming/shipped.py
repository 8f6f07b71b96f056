"""Ships our own code to remote executors, so that driver and executors run the same version."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import policies
import streaming

_SHIPPED = (policies, streaming)
_AS_OF = (1980, 1, 1, 0, 0, 0)
"""Time of each file: the same code gives the same bytes."""


def packed_code(folder: Path) -> Path:
    """Write `headgate-code.zip`, with all modules that an executor may load."""
    file = folder / "headgate-code.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, source in _modules():
            pack.writestr(zipfile.ZipInfo(name, _AS_OF), source.read_bytes(), zipfile.ZIP_DEFLATED)
    return file


def _modules() -> Iterator[tuple[str, Path]]:
    for package in _SHIPPED:
        root = Path(package.__path__[0])
        for source in sorted(root.rglob("*.py")):
            yield f"{root.name}/{source.relative_to(root).as_posix()}", source
