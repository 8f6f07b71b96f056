"""Java archives of other products: fetched once by Maven (Ivy takes minutes where they are many), kept in a cache."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from deploy.java.jvm import tail
from policies.units import UserError, without_settings

# Named with its version: the one that old Mavens choose themselves is too old to read Pulsar's BOM.
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_SECONDS = 900
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
"""More of a dependency: without what it needs itself."""


def ensure_fetched(
    folder: Path, pom: str, options: Sequence[str] = (), expected_digest: str | None = None
) -> tuple[Path, ...]:
    """Return the jars in `folder/jars`, sorted by name; fetch them first if they are missing.

    Two processes never fetch at once, and the folder appears whole or not at all.

    Args:
        folder: its name says which jars it holds.
        options: for Maven, such as exclusions.
        expected_digest: of all jars, as `digest` returns it; None accepts any.

    Raises:
        UserError: they cannot be fetched, or their digest is another one.
    """
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():  # another process may have fetched them meanwhile
                _fetch(folder, pom, options, expected_digest)
    return tuple(sorted((folder / "jars").glob("*.jar")))


def digest(jars: Iterable[Path]) -> str:
    """The SHA-256 over the lines that `sha256sum` prints for the jars, sorted by name."""
    lines = (f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in sorted(jars))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def pom_of(dependencies: Iterable[str], managed: Iterable[str] = ()) -> str:
    """A project with these dependencies, and with versions managed by those of `managed`."""
    versions = f"<dependencyManagement><dependencies>{''.join(managed)}</dependencies></dependencyManagement>"
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>headgate</groupId><artifactId>for-tests</artifactId>"
        f"<version>1</version><packaging>pom</packaging>{versions if managed else ''}"
        f"<dependencies>{''.join(dependencies)}</dependencies></project>\n"
    )


def dependency(group: str, artifact: str, version: str, more: str = "") -> str:
    """One dependency; `more` is further XML of it."""
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{more}"
        "</dependency>"
    )


def _fetch(folder: Path, pom: str, options: Sequence[str], expected_digest: str | None) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise UserError(f"{folder.name}: its jars are fetched with Maven, and there is no mvn on the PATH.")
    beside = folder.with_name(f"{folder.name}.fetching")
    shutil.rmtree(beside, ignore_errors=True)  # an interrupted fetch left it behind
    beside.mkdir()
    (beside / "pom.xml").write_text(pom)
    given = ("-DincludeScope=runtime", "-DoutputDirectory=jars", *options)
    _run_maven([maven, "-B", "-q", _COPY, *given], beside, folder.name)
    found = digest((beside / "jars").glob("*.jar"))
    if expected_digest not in (None, found):
        raise UserError(f"the jars of {folder.name} are not those that were tested: their digest is {found}.")
    beside.rename(folder)


def _run_maven(command: list[str], folder: Path, what: str) -> None:
    log = folder / "maven.log"
    try:
        with log.open("wb") as output:
            subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_FETCH_SECONDS,
                check=True,
                env=without_settings(os.environ),
            )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = next((line for line in tail(log) if "ERROR" in line), "Maven did not say why")
        raise UserError(f"{what}: its jars could not be fetched ({said[:300]}); the network is needed once.") from error
