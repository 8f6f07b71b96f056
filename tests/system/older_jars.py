"""Older versions of what is watched, for tests only: fetched once by Maven, and only what was tested is taken.

`python -m tests.system.older_jars` fetches them all; of one that differs from `DIGESTS` it says the digest found.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.jars import default_cache_dir
from deploy.jvm import tail
from policies.errors import UserError

# Named with its version: the one that old Mavens choose themselves is too old to read Pulsar's BOM.
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_SECONDS = 900
_UNUSED = "rocksdbjni,client-java,client-java-api,client-java-proto,grpc-xds"
_FOREIGN = "osx-x86_64,osx-aarch_64,windows-x86_64"

DIGESTS = {
    "kafka-3.3.2": "d42d5b500b5c44e93c11ae95958be2305da3f77a89d64f0a65ee38c24a6782c5",
    "kafka-3.6.2": "bade5b8ad8f4e7704d1de53668ad1319857f9512f8340497dbcc821236c8871d",
    "kafka-3.9.1": "4a7187d76d86960c8cc101e20d6701170ab2b03708681e112fea247f3bd8e3a1",
    "kafka-4.0.0": "d099366d8d844b72cd134e7091b9a98eb2a3fbdf38bc33f96fe26d318a9a0708",
    "pulsar-2.10.5": "258c5eaaa43c2bd3db20b2d27e262876299f65efffebb795d174f44cddfe6d77",
    "pulsar-3.0.7": "1a320ba2869c871e8e4e85987acc090553fc9b3c4200c752cf641a2ff466cf5c",
    "pulsar-4.0.7": "3757738662d822a718dc2cd59ebd254aa39c0c318a9e1a9942ca67d12ef3fb50",
    "zookeeper-3.6.4": "bab9e6fe73e1b3ae6db141d7739bbe7602f27320b3141f078434c0c8e878b8c6",
    "zookeeper-3.7.2": "d39c5037d021b1db3d427816c83a977dc9a8c1fde298a0549f57bdc3c6a16503",
    "zookeeper-3.8.4": "734dc69134bd2aa770dcc6fec9927cb5f7bed1a39fdae17eba7cdcabd63e5688",
    "zookeeper-3.9.3": "94efee696c61de83f636e4409a620ea2cfe31d6f9b6d8bff8cb8db15ddaf4f5c",
}
"""Of each version's jars together: SHA-256 over the lines that `sha256sum` would print of them, sorted by name."""


def ensure_older_jars(name: str, cache_dir: Path) -> tuple[Path, ...]:
    """Return the jars of a version such as ``kafka-3.3.2``, sorted by name; fetch them first if need be.

    Two processes never fetch at once, and the folder appears whole or not at all.

    Raises:
        UserError: they are missing and cannot be fetched, or are not those that were tested.
    """
    folder = cache_dir / name
    if not folder.exists():
        cache_dir.mkdir(parents=True, exist_ok=True)
        with (cache_dir / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():  # another process may have fetched them meanwhile
                _fetch(name, folder)
    return tuple(sorted((folder / "jars").glob("*.jar")))


def digest(jars: tuple[Path, ...] | list[Path]) -> str:
    """What `DIGESTS` holds of a version."""
    lines = (f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in sorted(jars))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _fetch(name: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise UserError("older versions are fetched with Maven, and there is no mvn on the PATH.")
    beside = folder.with_name(f"{folder.name}.fetching")
    shutil.rmtree(beside, ignore_errors=True)  # an interrupted fetch left it behind
    beside.mkdir()
    (beside / "pom.xml").write_text(_pom(*name.rsplit("-", 1)))
    options = (f"-DexcludeArtifactIds={_UNUSED}", f"-DexcludeClassifiers={_FOREIGN}", "-DoutputDirectory=jars")
    _run_maven([maven, "-B", "-q", _COPY, "-DincludeScope=runtime", *options], beside)
    found = digest(list((beside / "jars").glob("*.jar")))
    if DIGESTS[name] != found:
        raise UserError(f"the jars of {name} are not those that were tested: their digest is {found}.")
    beside.rename(folder)


def _run_maven(command: list[str], folder: Path) -> None:
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
            )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = next((line for line in tail(log) if "ERROR" in line), "Maven did not say why")
        raise UserError(f"older jars could not be fetched ({said[:300]}); the network is needed once.") from error


def _pom(product: str, version: str) -> str:
    managed = ""
    wanted: list[tuple[str, ...]]
    match product:
        case "kafka":
            # What Kafka 3 and Kafka 4 log with themselves.
            is_older = version.startswith("3.")
            logging = ("org.slf4j", "slf4j-reload4j", "1.7.36") if is_older else (*_LOG4J, "2.25.4")
            wanted = [("org.apache.kafka", "kafka_2.13", version), logging]
        case "zookeeper":
            wanted = [("org.apache.zookeeper", "zookeeper", version), *_FOR_ZOOKEEPER]
        case _:
            wanted = [("org.apache.pulsar", "pulsar-broker", version), *_FOR_ZOOKEEPER]
            bom = _dependency("org.apache.pulsar", "pulsar", version, "<type>pom</type><scope>import</scope>")
            managed = f"<dependencyManagement><dependencies>{bom}</dependencies></dependencyManagement>"
    each = "".join(_dependency(*names) for names in wanted)
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>headgate</groupId><artifactId>older-for-tests</artifactId>"
        f"<version>1</version><packaging>pom</packaging>{managed}<dependencies>{each}</dependencies></project>\n"
    )


_LOG4J = ("org.apache.logging.log4j", "log4j-slf4j-impl")
# Without these a ZooKeeper server dies, or answers and lets every client time out.
_FOR_ZOOKEEPER = [
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
]


def _dependency(group: str, artifact: str, version: str, more: str = "") -> str:
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{more}"
        "</dependency>"
    )


def _each() -> Iterator[str]:
    for name in DIGESTS:
        try:
            ensure_older_jars(name, older_cache())
            yield f"{name}: as tested\n"
        except UserError as error:
            yield f"{name}: {error}\n"


def older_cache() -> Path:
    """Where they are kept."""
    return default_cache_dir().parent / "older"


if __name__ == "__main__":
    sys.stdout.writelines(_each())
