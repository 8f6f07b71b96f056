"""The Java archives that Headgate needs: fetched once with the Ivy inside PySpark, verified, and cached.

`jars.sha256` lists their checksums, one line per file, in the format of `sha256sum`.

`python -m deploy.java.jars` fetches them ahead of time (for an image, or for a machine without a network);
with `--write-manifest` it renews `jars.sha256` after a change in `ivy.xml`.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from deploy.java.jar_shares import ByteLines, Coordinates, OnBytes, coordinates_of, fetch_shares, read_coordinates
from deploy.java.jvm import run_java
from policies.errors import UserError

SETTINGS_VARIABLE = "HEADGATE_IVY_SETTINGS"

_HERE = Path(__file__).parent
_MANIFEST = _HERE / "jars.sha256"
_COORDINATES = _HERE / "jars.coordinates"
_IVY_FILE = _HERE / "ivy.xml"
_MANIFEST_LINE = re.compile(r"(?P<sum>[0-9a-f]{64})  (?P<group>[\w.-]+)/(?P<file>[\w.-]+\.jar)")
_DOWNLOADING = re.compile(r"downloading \S*/(?P<file>[^/\s]+\.jar) \.\.\.")
_FOUND = re.compile(r"\tfound [^#]+#(?P<module>[^;]+);(?P<version>\S+) in ")
_FAILURE = re.compile(r"Server access error.*\((?P<cause>[^()]*)\)")

# A network that swallows packets must not hold a start for the minutes the operating system would wait.
_CONNECT_TIMEOUT_MILLISECONDS = 15_000
_READ_TIMEOUT_MILLISECONDS = 30_000

Progress = Callable[[str], None]


def _silent(_line: str) -> None:
    """Report no progress."""


def default_cache_dir() -> Path:
    """Return where jars are kept unless told otherwise: `headgate/jars` in `$XDG_CACHE_HOME` or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate" / "jars"


def groups() -> tuple[str, ...]:
    """Return the names of all groups of jars."""
    return tuple(_read_manifest(_MANIFEST))


def ensure_jars(
    group: str,
    cache_dir: Path,
    *,
    progress: Progress = _silent,
    on_bytes: OnBytes | None = None,
    manifest: Path = _MANIFEST,
    coordinates: Path = _COORDINATES,
) -> tuple[Path, ...]:
    """Return the jars of a group, sorted by name, and fetch what is missing or damaged first.

    Content is hashed when it is fetched, and again when a file's size or time of change differs from what the last
    check noted; else this takes about a millisecond. A cache that cannot be written will do if it is complete.
    `progress` gets a line now and then while fetching, with the time that is left; `on_bytes`, if given, gets bytes so
    far and in all in its place. Two processes never fetch at once.

    Raises UserError when jars are missing and cannot be fetched, or a fetched one is not what `manifest` says,
    and ValueError for an unknown group.
    """
    sums = _read_manifest(manifest).get(group)
    if sums is None:
        raise ValueError(f"there is no group of jars named {group}")
    cache_dir = cache_dir.absolute()  # a server runs in a directory of its own
    if not _is_complete(cache_dir, group, sums):
        with _locked(cache_dir, progress):
            if not _is_complete(cache_dir, group, sums):  # another process may have fetched them meanwhile
                known = read_coordinates(coordinates).get(group, [])
                _prefetch(cache_dir, group, sums, known, on_bytes or ByteLines(progress, f"jars of {group}"))
                if not _is_complete(cache_dir, group, sums):
                    _fetch(cache_dir, group, sums, progress)
    return tuple(cache_dir / group / file for file in sums)


def bytes_to_fetch(group: str, cache_dir: Path, *, coordinates: Path = _COORDINATES) -> int:
    """Return how much of a group is not in the cache, as far as sizes are known."""
    known = read_coordinates(coordinates).get(group, [])
    return sum(each.size_bytes for each in known if not (cache_dir / group / each.file).exists())


def missing_jars(group: str, cache_dir: Path) -> tuple[str, ...]:
    """The jars of a group that are not in the cache, or not as they should be; nothing is fetched."""
    sums = _read_manifest(_MANIFEST)[group]
    return tuple(file for file in sums if not _is_right(cache_dir / group / file, sums))


def write_manifest(
    cache_dir: Path, *, progress: Progress = _silent, manifest: Path = _MANIFEST, coordinates: Path = _COORDINATES
) -> None:
    """Fetch all groups of `ivy.xml`; write the sums of what came, for a maintainer to review, and where it came from.

    Raises UserError when nothing can be fetched.
    """
    names = re.findall(r'<conf name="([^"]+)"', _IVY_FILE.read_text())
    lines: list[str] = []
    found: list[str] = []
    for group in names:
        with _locked(cache_dir, progress), _retrieved(cache_dir, group, progress) as (folder, log):
            files = sorted(folder.glob("*.jar"))
            if not files:
                raise UserError(f"no jar of group {group} could be fetched ({_cause(log)}).")
            lines += [f"{_sha256(file)}  {group}/{file.name}\n" for file in files]
            found += coordinates_of(cache_dir / "ivy", group, files)
    manifest.write_text("".join(lines))
    coordinates.write_text("".join(found))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch groups of jars into the cache, or renew the manifest; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.java.jars", description=main.__doc__)
    parser.add_argument("group", nargs="*", help=f"which to fetch: {', '.join(groups())} (default: all)")
    parser.add_argument("--cache-dir", type=Path, default=default_cache_dir(), help="default: %(default)s")
    parser.add_argument("--write-manifest", action="store_true", help="fetch all groups and write their sums")
    options = parser.parse_args(arguments)
    try:
        if options.write_manifest:
            write_manifest(options.cache_dir, progress=_print_progress)
        else:
            for group in options.group or groups():
                ensure_jars(group, options.cache_dir, progress=_print_progress)
    except (UserError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _print_progress(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# --- what is there


def _read_manifest(manifest: Path) -> dict[str, dict[str, str]]:
    """Return {group: {file: sha256}}, files sorted, of a manifest in the format of `sha256sum`."""
    by_group: dict[str, dict[str, str]] = {}
    for number, line in enumerate(manifest.read_text().splitlines(), 1):
        match = _MANIFEST_LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{manifest}, line {number}: expected '<sha256>  <group>/<file>.jar', found {line!r}")
        by_group.setdefault(match["group"], {})[match["file"]] = match["sum"]
    return {group: dict(sorted(sums.items())) for group, sums in by_group.items()}


def _is_complete(cache_dir: Path, group: str, sums: Mapping[str, str]) -> bool:
    """Whether all files of the group are there and right; notes that for the next time."""
    stamp = _stamp_file(cache_dir, group, sums)
    seen = _sizes_and_times(cache_dir / group, sums)
    if seen is None:
        return False
    if _read_stamp(stamp) == seen:
        return True
    if _wrong_files(cache_dir / group, sums):
        return False
    with suppress(OSError):  # a read-only cache, say in an image, is hashed at each start instead
        _write_whole(stamp, json.dumps(seen))
    return True


def _stamp_file(cache_dir: Path, group: str, sums: Mapping[str, str]) -> Path:
    """Return the stamp's path; the digest in it keeps versions of Headgate that share a cache apart."""
    digest = hashlib.sha256(json.dumps(sums).encode()).hexdigest()
    return cache_dir / f"{group}.{digest[:16]}.stamp"


def _sizes_and_times(folder: Path, files: Mapping[str, str]) -> dict[str, list[int]] | None:
    """Return {file: [bytes, epoch seconds of its last change]}, or None when a file is missing."""
    try:
        stats = {file: (folder / file).stat() for file in files}
    except (FileNotFoundError, NotADirectoryError):
        return None
    # Whole seconds: copies and image layers round a file's time.
    return {file: [stat.st_size, int(stat.st_mtime)] for file, stat in stats.items()}


def _read_stamp(stamp: Path) -> object:
    with suppress(OSError, ValueError):
        return json.loads(stamp.read_text())
    return None


def _wrong_files(folder: Path, sums: Mapping[str, str]) -> dict[str, str]:
    """Return {file: sum found} of files that are there with another content than they should have."""
    found = {file: _sha256(folder / file) for file in sums if (folder / file).exists()}
    return {file: found_sum for file, found_sum in found.items() if found_sum != sums[file]}


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write_whole(file: Path, text: str) -> None:
    """Write a file so that readers see the old text or the new one, never a part."""
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    beside.write_text(text)
    beside.replace(file)


# --- fetching


@contextmanager
def _locked(cache_dir: Path, progress: Progress) -> Iterator[None]:
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


def _prefetch(
    cache_dir: Path, group: str, sums: Mapping[str, str], known: Sequence[Coordinates], on_bytes: OnBytes
) -> None:
    """Fetch side by side what is known by its coordinates; only what is as it should be is kept."""
    wanted = [each for each in known if each.file in sums and not _is_right(cache_dir / group / each.file, sums)]
    if not wanted:
        return
    with _emptied(cache_dir, group) as folder:
        fetch_shares(wanted, folder, lambda ivy, cache: _run_share(cache_dir, folder, ivy, cache), on_bytes)
        _keep(folder, cache_dir / group, [each.file for each in wanted if _is_right(folder / each.file, sums)])


def _run_share(cache_dir: Path, folder: Path, description: Path, cache: Path) -> None:
    arguments = _ivy_arguments(cache_dir, "jars", folder, description=description, ivy_cache=cache)
    run_java(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *arguments], on_line=_end_without_network)


def _end_without_network(line: str) -> None:
    """End an Ivy that reaches nobody: it would wait for each module anew."""
    if _FAILURE.search(line):
        raise ConnectionError(line)


def _fetch(cache_dir: Path, group: str, sums: Mapping[str, str], progress: Progress) -> None:
    with _retrieved(cache_dir, group, progress) as (folder, log):
        wrong = _wrong_files(folder, sums)
        _keep(folder, cache_dir / group, [file for file in sums if (folder / file).exists() and file not in wrong])
        if wrong:
            _forget(cache_dir, wrong)
            raise UserError(_mismatch_message(sums, wrong))
        missing = [file for file in sums if not _is_right(cache_dir / group / file, sums)]
        if missing:
            raise UserError(_missing_message(cache_dir, group, missing, log))
    _is_complete(cache_dir, group, sums)


def _is_right(path: Path, sums: Mapping[str, str]) -> bool:
    return path.exists() and _sha256(path) == sums[path.name]


def _keep(fetched: Path, folder: Path, files: Sequence[str]) -> None:
    """Move files to where they are used; each appears there whole or not at all."""
    folder.mkdir(exist_ok=True)
    for file in files:
        (fetched / file).replace(folder / file)


def _forget(cache_dir: Path, files: Mapping[str, str]) -> None:
    """Delete files from Ivy's own cache, which would else hand out the same wrong content for ever."""
    for file in files:
        for path in (cache_dir / "ivy").rglob(file):
            path.unlink()


@contextmanager
def _retrieved(cache_dir: Path, group: str, progress: Progress) -> Iterator[tuple[Path, list[str]]]:
    """Give a temporary folder with the jars Ivy could fetch, and what Ivy printed."""
    with _emptied(cache_dir, group) as folder:
        yield folder, _run_ivy(cache_dir, group, folder, progress)


@contextmanager
def _emptied(cache_dir: Path, group: str) -> Iterator[Path]:
    """Give a temporary folder."""
    folder = cache_dir / f".fetching-{group}"
    shutil.rmtree(folder, ignore_errors=True)  # an interrupted fetch left it behind
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_ivy(cache_dir: Path, group: str, folder: Path, progress: Progress) -> list[str]:
    """Run Ivy and return what it printed, which `ivy.log` keeps too.

    Its exit code does not matter: what counts is which files came, and with what content.
    """
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        event = _progress_line(line)
        if event:
            progress(event)

    run_java(_ivy_arguments(cache_dir, group, folder), on_line=on_line)
    (cache_dir / "ivy.log").write_text("\n".join(lines) + "\n")
    return lines


def _ivy_arguments(
    cache_dir: Path, group: str, folder: Path, *, description: Path = _IVY_FILE, ivy_cache: Path | None = None
) -> list[str]:
    return [
        f"-Dsun.net.client.defaultConnectTimeout={_CONNECT_TIMEOUT_MILLISECONDS}",
        f"-Dsun.net.client.defaultReadTimeout={_READ_TIMEOUT_MILLISECONDS}",
        # Modules a person put into ~/.ivy2 for other work must not slip in here.
        f"-Divy.default.ivy.user.dir={cache_dir / 'ivy-home'}",
        "-jar",
        str(_ivy_jar()),
        *_mirror_settings(),
        *("-ivy", str(description)),
        *("-confs", group),
        *("-types", "jar", "bundle"),
        *("-cache", str(ivy_cache or cache_dir / "ivy")),
        *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
    ]


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UserError(
            "pyspark is not installed, and the Ivy inside it fetches the jars: install headgate with its dependencies."
        )
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise UserError(f"{Path(spec.origin).parent} has no jars/ivy-*.jar: install pyspark again.")
    return found[-1]


def _mirror_settings() -> tuple[str, ...]:
    file = os.environ.get(SETTINGS_VARIABLE)
    if not file:
        return ()
    if not Path(file).is_file():
        raise UserError(f"{SETTINGS_VARIABLE} is {file}, and there is no such file.")
    return ("-settings", file)


def _progress_line(line: str) -> str | None:
    if match := _DOWNLOADING.search(line):
        return f"fetching {match['file']}"
    if match := _FOUND.match(line):
        return f"found {match['module']} {match['version']}"
    return None


def _mismatch_message(sums: Mapping[str, str], wrong: Mapping[str, str]) -> str:
    each = "; ".join(f"{file}: expected sha256 {sums[file]}, found {found}" for file, found in wrong.items())
    return (
        f"fetched jars differ from the manifest and were deleted ({each}): "
        "run again; if it persists, a proxy or mirror changes files."
    )


def _missing_message(cache_dir: Path, group: str, missing: Sequence[str], log: Sequence[str]) -> str:
    some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return (
        f"jars of group {group} are missing in {cache_dir} and could not be fetched ({_cause(log)}): {some}. "
        "The network is needed once. Behind a proxy set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=… -Dhttps.proxyPort=…'; "
        f"for a Maven mirror set {SETTINGS_VARIABLE} to an Ivy settings file; or copy the folder from a machine that "
        f"has them. Details: {cache_dir / 'ivy.log'}"
    )


def _cause(log: Sequence[str]) -> str:
    """Return why Ivy failed, in its own words."""
    for line in log:
        if match := _FAILURE.search(line):
            return match["cause"]
    problems = [line.strip() for line in log if "not found" in line or "[FAILED" in line or "rror" in line]
    return problems[0] if problems else "Ivy did not say why"


if __name__ == "__main__":
    sys.exit(main())
