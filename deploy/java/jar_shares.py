"""Fetches jars in parallel: several Ivy processes, each with a share of the modules known to be needed.

Ivy alone reads one module description after the other and then fetches one jar after the other: a minute and a half
for the broker, most of it waiting. The final list of modules is known (`jars.coordinates`, renewed with
`jars.sha256`), so several Ivys fetch them side by side, each with its own cache. A full resolve afterwards fetches what
they missed, and reports errors.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from deploy.processes.background import beside

SHARES = 6
"""More Ivys at once are no faster on two cores: each is a JVM."""

_LOOK_SECONDS = 0.5

OnBytes = Callable[[int, int], None]
"""Told of bytes so far and in all, now and then."""


class Coordinates(NamedTuple):
    """A module that has a jar of a group."""

    file: str
    organisation: str
    module: str
    revision: str
    size_bytes: int


def read_coordinates(file: Path) -> dict[str, list[Coordinates]]:
    """What is known of each group; nothing where there is no such file."""
    by_group: dict[str, list[Coordinates]] = {}
    with suppress(FileNotFoundError):
        for line in file.read_text().splitlines():
            place, organisation, module, revision, size = line.split()
            group, _, name = place.partition("/")
            by_group.setdefault(group, []).append(Coordinates(name, organisation, module, revision, int(size)))
    return by_group


def coordinates_of(ivy_cache: Path, group: str, files: Sequence[Path]) -> Iterator[str]:
    """Lines of `jars.coordinates` for files that Ivy has fetched; those with a classifier it must find by itself."""
    known = {path.name: path for path in ivy_cache.glob("*/*/*/*.jar")}
    for file in files:
        path = known.get(file.name)
        if path is None:
            continue
        organisation, module = path.parts[-4], path.parts[-3]
        revision = file.stem.removeprefix(f"{module}-")
        if (path.parents[1] / f"ivy-{revision}.xml").exists():
            yield f"{group}/{file.name} {organisation} {module} {revision} {file.stat().st_size}\n"


def fetch_shares(
    wanted: Sequence[Coordinates], folder: Path, run_ivy: Callable[[Path, Path], object], on_bytes: OnBytes
) -> None:
    """Fetch as much as can be had into a folder; what fails is left to the whole resolve.

    Args:
        wanted: the modules.
        folder: where the jars go; temporary.
        run_ivy: runs Ivy with a module file and a cache, returns when it has ended; what it raises nobody hears.
        on_bytes: told of the progress.
    """
    heaviest = sorted(wanted, key=lambda each: -each.size_bytes)
    shares = [share for start in range(SHARES) if (share := heaviest[start::SHARES])]
    work = folder / "shares"
    work.mkdir()
    try:
        with _watched(work, sum(each.size_bytes for each in wanted), on_bytes), ThreadPoolExecutor(SHARES) as ivys:
            for number, share in enumerate(shares):
                ivys.submit(_fetch_share, share, work / str(number), run_ivy)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fetch_share(share: Sequence[Coordinates], work: Path, run_ivy: Callable[[Path, Path], object]) -> None:
    work.mkdir()
    description = work / "ivy.xml"
    description.write_text(_ivy_xml(share, work.name))
    run_ivy(description, work / "cache")


def _ivy_xml(share: Sequence[Coordinates], name: str) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(each.organisation)} name={quoteattr(each.module)} rev={quoteattr(each.revision)}"
        ' conf="jars->master" transitive="false">'
        f'<artifact name={quoteattr(each.module)} type="jar" ext="jar"/></dependency>'
        for each in share
    )
    return (
        f'<ivy-module version="2.0"><info organisation="headgate" module="share-{name}"/>'
        f'<configurations><conf name="jars"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


def _watched(work: Path, total_bytes: int, on_bytes: OnBytes) -> AbstractContextManager[None]:
    """Tell now and then how much has come."""

    def watch(over: threading.Event) -> None:
        while not over.wait(_LOOK_SECONDS):
            on_bytes(min(_bytes_in(work), total_bytes), total_bytes)

    return beside("jar-progress", watch)


def _bytes_in(work: Path) -> int:
    found = 0
    for path in work.glob("*/cache/**/*.jar*"):  # also what has come in part
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


class ByteLines:
    """Turns progress in bytes into a line now and then, with the time that is left.

    Args:
        say: takes a line.
        what: is being fetched.
        each_seconds: a line at most so often.
        clock: seconds.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        what: str,
        *,
        each_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._what = what
        self._each_seconds = each_seconds
        self._clock = clock
        self._began = self._said = clock()

    def __call__(self, done: int, total: int) -> None:
        """Take note of the progress."""
        now = self._clock()
        if now - self._said < self._each_seconds or done >= total:
            return
        self._said = now
        # At first it is descriptions that are read, so what has come says little of what is left.
        left = (now - self._began) * (total - done) / max(1, done)
        guess = f", about {left:.0f} s left" if done > total / 10 else ""
        self._say(f"fetching {self._what}: {done / 1e6:.0f} of {total / 1e6:.0f} MB{guess}")
