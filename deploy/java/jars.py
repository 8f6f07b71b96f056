"""The Java archives that Headgate needs: fetched once with the Ivy inside PySpark, verified, and cached.

`jars.sha256` lists their checksums, one line per file, in the format of `sha256sum`.

`python -m deploy.java.jars` fetches them ahead of time (for an image, or for a machine without a network);
with `--write-manifest` it renews `jars.sha256` after a change in `ivy.xml`.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import structlog
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from deploy.console.terminal import SafeConsole
from deploy.java.jvm import run_java
from deploy.settings.folders import default_cache_dir
from policies.units import UserError

SETTINGS_VARIABLE = "HEADGATE_IVY_SETTINGS"

_log = structlog.get_logger(__name__)
_HERE = Path(__file__).parent
_MANIFEST = _HERE / "jars.sha256"
_IVY_FILE = _HERE / "ivy.xml"
_DOWNLOADING = re.compile(r"downloading \S*/(?P<file>[^/\s]+\.jar) \.\.\.")
_FAILURE = re.compile(r"Server access error.*\((?P<cause>[^()]*)\)")

# If a network drops packets silently, the operating system would wait for minutes. A start must not wait that long.
_CONNECT_TIMEOUT_MILLISECONDS = 15_000
_READ_TIMEOUT_MILLISECONDS = 30_000

OnLine = Callable[[str], None]
"""Receives one line for each jar that Ivy downloads."""


def log_progress(line: str) -> None:
    """Log a line of progress, for a process without a terminal screen of its own."""
    _log.info(line)


def groups() -> tuple[str, ...]:
    """Return the names of all groups of jars."""
    return tuple(_read_manifest())


def spark_group() -> str:
    """Return the group with the Kafka connector for the installed PySpark: a connector runs with its own minor only."""
    return "spark-4.1" if version("pyspark").startswith("4.1.") else "spark"


def fetch_jars(names: Sequence[str], cache_dir: Path, on_line: OnLine = log_progress) -> list[tuple[Path, ...]]:
    """Return the jars of several groups, and fetch the missing ones: under one progress bar if stderr is a terminal.

    Without a terminal, `on_line` receives a line for each download. Raises as `ensure_jars` does.
    """
    names, manifest = [spark_group() if name == "spark" else name for name in names], _read_manifest()
    total = sum(not (cache_dir / name / file).exists() for name in names for file in manifest[name])
    if not total or not sys.stderr.isatty():
        return [ensure_jars(name, cache_dir, on_line) for name in names]
    columns = (TextColumn("fetching jars, once"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=SafeConsole(stderr=True), transient=True) as bar:
        task = bar.add_task("resolving", total=total)

        def draw(line: str) -> None:
            bar.update(task, description=line, advance=line.startswith("fetching "))

        return [ensure_jars(name, cache_dir, draw) for name in names]


def ensure_jars(group: str, cache_dir: Path, progress: OnLine = log_progress) -> tuple[Path, ...]:
    """Return the jars of a group, sorted by name, and fetch the missing and damaged ones first.

    Each call hashes the group's files, which takes a millisecond per MB. A complete cache may be read-only. Two
    processes never fetch at the same time.

    Raises UserError when jars are missing and cannot be fetched, or when a fetched one has another checksum than
    the manifest lists, and ValueError for an unknown group.
    """
    sums = _read_manifest().get(group)
    if sums is None:
        raise ValueError(f"there is no group of jars named {group}")
    cache_dir = cache_dir.absolute()  # each server has its own working directory
    if _unusable_files(cache_dir / group, sums):
        with _locked(cache_dir, progress):
            if _unusable_files(cache_dir / group, sums):  # another process may have fetched them meanwhile
                _fetch(cache_dir, group, sums, progress)
    return tuple(cache_dir / group / file for file in sums)


def missing_jars(group: str, cache_dir: Path) -> tuple[str, ...]:
    """Return the jars of a group that are missing in the cache or damaged; fetches nothing."""
    return _unusable_files(cache_dir / group, _read_manifest()[group])


def write_manifest(cache_dir: Path, progress: OnLine = log_progress) -> None:
    """Fetch all groups of `ivy.xml` and write their checksums, for a maintainer to review."""
    lines: list[str] = []
    for group in re.findall(r'<conf name="([^"]+)"', _IVY_FILE.read_text()):
        with _locked(cache_dir, progress), _retrieved(cache_dir, group, progress) as (folder, log):
            files = sorted(folder.glob("*.jar"))
            if not files:
                raise UserError(f"no jar of group {group} could be fetched ({_cause(log)}).")
            lines += [f"{_sha256(file)}  {group}/{file.name}\n" for file in files]
    _MANIFEST.write_text("".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch groups of jars into the cache, or renew the manifest; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.java.jars", description=main.__doc__)
    parser.add_argument("group", nargs="*", help=f"which to fetch: {', '.join(groups())} (default: all)")
    parser.add_argument("--cache-dir", type=Path, default=default_cache_dir(), help="default: %(default)s")
    parser.add_argument("--write-manifest", action="store_true", help="fetch all groups and write their sums")
    options = parser.parse_args(arguments)
    try:
        if options.write_manifest:
            write_manifest(options.cache_dir, _print_line)
        else:
            for group in options.group or groups():
                ensure_jars(group, options.cache_dir, _print_line)
    except (UserError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# --- the cache


def _read_manifest() -> dict[str, dict[str, str]]:
    """Return {group: {file: sha256}}, files sorted."""
    by_group: dict[str, dict[str, str]] = {}
    for line in sorted(_MANIFEST.read_text().splitlines(), key=lambda line: line.partition("  ")[2]):
        checksum, place = line.split("  ")
        group, file = place.split("/")
        by_group.setdefault(group, {})[file] = checksum
    return by_group


def _unusable_files(folder: Path, sums: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files of the manifest that are missing in a folder or have another checksum."""
    try:
        return tuple(file for file in sums if not (folder / file).exists() or _sha256(folder / file) != sums[file])
    except OSError as error:
        raise UserError(f"jars_dir: {folder} cannot be read ({error.strerror}): name another folder") from None


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- fetching


@contextmanager
def _locked(cache_dir: Path, progress: OnLine) -> Iterator[None]:
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        lock = (cache_dir / "lock").open("w")
    except OSError as error:
        raise UserError(f"jars are missing in {cache_dir}, and it cannot be written ({error.strerror}).") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that is fetching jars")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(cache_dir: Path, group: str, sums: Mapping[str, str], progress: OnLine) -> None:
    with _retrieved(cache_dir, group, progress) as (fetched, log):
        found = {file: _sha256(fetched / file) for file in sums if (fetched / file).exists()}
        wrong = [file for file, checksum in found.items() if checksum != sums[file]]
        (cache_dir / group).mkdir(exist_ok=True)
        for file in found:
            if file not in wrong:
                (fetched / file).replace(cache_dir / group / file)  # appears there whole or not at all
        if wrong:
            # Ivy's own cache would return the same wrong content at each further attempt.
            for path in (path for file in wrong for path in (cache_dir / "ivy").rglob(file)):
                path.unlink()
            each = "; ".join(f"{file}: expected sha256 {sums[file]}, found {found[file]}" for file in wrong)
            raise UserError(
                f"fetched jars differ from the manifest and were deleted ({each}): "
                "run again; if it persists, a proxy or mirror changes files."
            )
        if missing := _unusable_files(cache_dir / group, sums):
            raise UserError(_missing_message(cache_dir, group, missing, log))


@contextmanager
def _retrieved(cache_dir: Path, group: str, progress: OnLine) -> Iterator[tuple[Path, list[str]]]:
    """Yield a temporary folder with the jars that Ivy could fetch, and the lines that Ivy printed."""
    folder = cache_dir / f".fetching-{group}"
    shutil.rmtree(folder, ignore_errors=True)  # an interrupted fetch may have left it behind
    folder.mkdir()
    try:
        yield folder, _run_ivy(cache_dir, group, folder, progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_ivy(cache_dir: Path, group: str, folder: Path, progress: OnLine) -> list[str]:
    """Run Ivy, write its output to `ivy.log` and return it.

    Ivy's exit code is ignored, because the caller checks which files were fetched and their checksums.
    """
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if match := _DOWNLOADING.search(line):
            progress(f"fetching {match['file']}")

    mirror = os.environ.get(SETTINGS_VARIABLE)
    if mirror and not Path(mirror).is_file():
        raise UserError(f"{SETTINGS_VARIABLE} is {mirror}, and there is no such file.")
    arguments = [
        f"-Dsun.net.client.defaultConnectTimeout={_CONNECT_TIMEOUT_MILLISECONDS}",
        f"-Dsun.net.client.defaultReadTimeout={_READ_TIMEOUT_MILLISECONDS}",
        # Modules that a person put into ~/.ivy2 for other work must not be used here.
        f"-Divy.default.ivy.user.dir={cache_dir / 'ivy-home'}",
        "-jar",
        str(_ivy_jar()),
        *(("-settings", mirror) if mirror else ()),
        *("-ivy", str(_IVY_FILE)),
        *("-confs", group),
        *("-types", "jar", "bundle"),
        *("-cache", str(cache_dir / "ivy")),
        *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    run_java(arguments, on_line=on_line)
    (cache_dir / "ivy.log").write_text("\n".join(lines) + "\n")
    return lines


def _ivy_jar() -> Path:
    return max((Path(str(find_spec("pyspark").origin)).parent / "jars").glob("ivy-*.jar"))  # type: ignore[union-attr]


def _missing_message(cache_dir: Path, group: str, missing: Sequence[str], log: Sequence[str]) -> str:
    some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return (
        f"jars of group {group} are missing in {cache_dir} and could not be fetched ({_cause(log)}): {some}. "
        "The network is needed once. Behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=… -Dhttps.proxyPort=…'; "
        f"for a Maven mirror set {SETTINGS_VARIABLE} to an Ivy settings file; or copy the folder from a machine that "
        f"has them. Details: {cache_dir / 'ivy.log'}"
    )


def _cause(log: Sequence[str]) -> str:
    """Return the reason for Ivy's failure, in Ivy's own words."""
    causes = [match["cause"] for line in log if (match := _FAILURE.search(line))]
    problems = [line.strip() for line in log if "not found" in line or "[FAILED" in line or "rror" in line]
    return next(iter([*causes, *problems]), "Ivy did not say why")


if __name__ == "__main__":
    sys.exit(main())
