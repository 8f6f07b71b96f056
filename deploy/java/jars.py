"""The Java archives that Headgate needs: fetched once from a Maven repository, verified, and cached.

`jars.sha256` lists them in the format of `sha256sum`: the checksum, then the group and the path in the repository.
`make jars` renews it after a change in `tools/ivy.xml`.

`python -m deploy.java.jars` fetches them ahead of time, for an image, or for a machine without a network.
"""

import argparse
import hashlib
import os
import re
import sys
import zipfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import structlog
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from deploy.console.terminal import SafeConsole
from deploy.settings.application import default_cache_dir
from policies.units import UserError

MIRROR_VARIABLE = "HEADGATE_MAVEN_URL"
_TIMEOUT_SECONDS = 30.0
"""Limit for a connection and for each part of an answer: a network may drop packets silently."""

_log = structlog.get_logger(__name__)
_MANIFEST = Path(__file__).with_name("jars.sha256")
_IVY_SETTINGS = "org/apache/ivy/core/settings/repository.properties"
_IVY_ROOT = re.compile(r"^ivy\.ibiblio\.default\.artifact\.root\s*=\s*(\S+)", re.MULTILINE)

OnLine = Callable[[str], None]
"""Receives one line for each jar that is fetched."""


class _Jar(NamedTuple):
    group: str
    path: str
    """Its path in the repository."""
    sha256: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def is_usable(self, cache_dir: Path) -> bool:
        """Return whether the cache has the jar, and it is not damaged."""
        file = cache_dir / self.group / self.name
        try:
            return file.exists() and _sha256(file) == self.sha256
        except OSError as error:
            raise UserError(f"jars_dir: {file} cannot be read ({error.strerror}): name another folder") from None


def log_progress(line: str) -> None:
    """Log a line of progress, for a process without a terminal screen of its own."""
    _log.info(line)


def spark_group() -> str:
    """Return the group with the Kafka connector for the installed PySpark: a connector runs with its own minor only."""
    return "spark-4.1" if version("pyspark").startswith("4.1.") else "spark"


def default_repository() -> str:
    """Return the address of the public Maven repository, as the Ivy inside PySpark has it."""
    ivy = max((Path(str(find_spec("pyspark").origin)).parent / "jars").glob("ivy-*.jar"))  # type: ignore[union-attr]
    with zipfile.ZipFile(ivy) as archive:
        found = _IVY_ROOT.search(archive.read(_IVY_SETTINGS).decode())
    if found is None:
        raise UserError(f"{ivy} names no Maven repository: set {MIRROR_VARIABLE} to the address of one")
    return found[1]


def ensure_jars(group: str, cache_dir: Path, on_line: OnLine = log_progress) -> tuple[Path, ...]:
    """Return the jars of one group, as `fetch_jars` does."""
    return fetch_jars([group], cache_dir, on_line)[0]


def fetch_jars(names: Sequence[str], cache_dir: Path, on_line: OnLine = log_progress) -> list[tuple[Path, ...]]:
    """Return the jars of each group, sorted by name, and fetch the missing and damaged ones first.

    If stderr is a terminal, one progress bar counts the jars; otherwise `on_line` receives a line for each. Each call
    hashes the files, which takes a millisecond per MB. A complete cache may be read-only. Of two processes that start
    with an empty cache, each fetches the jars; a jar appears whole or not at all.

    Raises UserError when a jar is missing and cannot be fetched, or when a fetched one has another checksum than the
    manifest lists, and ValueError for an unknown group.
    """
    cache_dir, wanted = cache_dir.absolute(), [_read_group(name) for name in names]  # servers have other directories
    missing = [jar for group in wanted for jar in group if not jar.is_usable(cache_dir)]
    if missing:
        _fetch(missing, cache_dir, on_line)
    return [tuple(cache_dir / jar.group / jar.name for jar in group) for group in wanted]


def missing_jars(group: str, cache_dir: Path) -> list[str]:
    """Return the jars of a group that are missing in the cache or damaged; fetches nothing."""
    return [jar.name for jar in _read_group(group) if not jar.is_usable(cache_dir)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch groups of jars into the cache; return the exit code."""
    groups = list(dict.fromkeys(jar.group for jar in _read_manifest()))
    parser = argparse.ArgumentParser(prog="python -m deploy.java.jars", description=main.__doc__)
    parser.add_argument("group", nargs="*", help=f"which to fetch: {', '.join(groups)} (default: all)")
    parser.add_argument("--cache-dir", type=Path, default=default_cache_dir(), help="default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        fetch_jars(options.group or groups, options.cache_dir, lambda line: print(line, flush=True))  # noqa: T201
    except (UserError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _read_manifest() -> list[_Jar]:
    listed = (re.split("  |/", line, maxsplit=2) for line in _MANIFEST.read_text().splitlines())
    return [_Jar(group, path, checksum) for checksum, group, path in listed]


def _read_group(name: str) -> list[_Jar]:
    group = spark_group() if name == "spark" else name
    jars = sorted((jar for jar in _read_manifest() if jar.group == group), key=lambda jar: jar.name)
    if not jars:
        raise ValueError(f"there is no group of jars named {name}")
    return jars


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch(jars: Sequence[_Jar], cache_dir: Path, on_line: OnLine) -> None:
    import httpx  # loaded once, for the first start

    is_drawn = sys.stderr.isatty()
    columns = (TextColumn("fetching jars, once"), BarColumn(), MofNCompleteColumn())
    base = os.environ.get(MIRROR_VARIABLE) or default_repository()
    client = httpx.Client(timeout=_TIMEOUT_SECONDS, follow_redirects=True)
    bar = Progress(*columns, console=SafeConsole(stderr=True), transient=True, disable=not is_drawn)
    with client, bar:
        for jar in bar.track(jars):
            if not is_drawn:
                on_line(f"fetching {jar.name}")
            try:
                answer = client.get(f"{base.rstrip('/')}/{jar.path}")
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise UserError(_explain_missing(jar, cache_dir, str(error) or type(error).__name__)) from None
            if not answer.is_success:
                raise UserError(_explain_missing(jar, cache_dir, f"status {answer.status_code}"))
            if (found := hashlib.sha256(answer.content).hexdigest()) != jar.sha256:
                raise UserError(
                    f"{jar.name}: the fetched jar differs from the manifest (expected sha256 {jar.sha256}, found "
                    f"{found}): run again; if it persists, a proxy or mirror changes files."
                )
            _store(answer.content, cache_dir / jar.group / jar.name)


def _store(content: bytes, file: Path) -> None:
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        beside.replace(file)
    except OSError as error:
        raise UserError(f"jars_dir: {file} cannot be written ({error.strerror}).") from None


def _explain_missing(jar: _Jar, cache_dir: Path, cause: str) -> str:
    return (
        f"jars of group {jar.group} are missing in {cache_dir}, and {jar.name} could not be fetched ({cause}). "
        f"The network is needed once. Behind a proxy set HTTPS_PROXY; for a Maven mirror set {MIRROR_VARIABLE} to its "
        "address; or copy the folder from a machine that has them."
    )


if __name__ == "__main__":
    sys.exit(main())
