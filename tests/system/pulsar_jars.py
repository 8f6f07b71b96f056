"""Pulsar's Java archives, for tests only: fetched once by Maven (Ivy takes minutes for them), kept in a cache."""

import fcntl
import shutil
import subprocess
from pathlib import Path

from deploy.jvm import tail
from policies.errors import UserError

PULSAR_VERSION = "4.2.4"

# Named with its version: the one that old Mavens choose themselves is too old to read Pulsar's BOM.
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_SECONDS = 600

# Nobody here uses functions on Kubernetes or RocksDB; they are a third of the whole. Natives of other systems too.
_UNUSED = "rocksdbjni,client-java,client-java-api,client-java-proto,grpc-xds"
_FOREIGN = "osx-x86_64,osx-aarch_64,windows-x86_64"

# The BOM keeps the versions of jackson, log4j, grpc and netty together. Pulsar's patched ZooKeeper replaces the plain
# one; without metrics-core and snappy a ZooKeeper server does not run.
_POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>headgate</groupId><artifactId>pulsar-for-tests</artifactId><version>1</version><packaging>pom</packaging>
  <dependencyManagement><dependencies>
    <dependency>
      <groupId>org.apache.pulsar</groupId><artifactId>pulsar</artifactId><version>{PULSAR_VERSION}</version>
      <type>pom</type><scope>import</scope>
    </dependency>
  </dependencies></dependencyManagement>
  <dependencies>
    <dependency>
      <groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId><version>{PULSAR_VERSION}</version>
      <exclusions>
        <exclusion><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.1.12.1</version>
    </dependency>
    <dependency>
      <groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.5</version>
    </dependency>
  </dependencies>
</project>
"""


def ensure_pulsar_jars(cache_dir: Path) -> tuple[Path, ...]:
    """Return the jars in `pulsar-<version>` of the cache, sorted by name; fetch them first if need be (about 1 min).

    Two processes never fetch at once, and the folder appears whole or not at all.

    Raises:
        UserError: they are missing and cannot be fetched.
    """
    folder = pulsar_folder(cache_dir)
    if not folder.exists():
        cache_dir.mkdir(parents=True, exist_ok=True)
        with (cache_dir / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():  # another process may have fetched them meanwhile
                _fetch(folder)
    return tuple(sorted((folder / "jars").glob("*.jar")))


def pulsar_folder(cache_dir: Path) -> Path:
    """Where they are, or will be, in `jars`."""
    return cache_dir / f"pulsar-{PULSAR_VERSION}"


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise UserError("Pulsar's jars are fetched with Maven, and there is no mvn on the PATH.")
    beside = folder.with_name(f"{folder.name}.fetching")
    shutil.rmtree(beside, ignore_errors=True)  # an interrupted fetch left it behind
    beside.mkdir()
    (beside / "pom.xml").write_text(_POM)
    options = (f"-DexcludeArtifactIds={_UNUSED}", f"-DexcludeClassifiers={_FOREIGN}", "-DoutputDirectory=jars")
    _run_maven([maven, "-B", "-q", _COPY, "-DincludeScope=runtime", *options], beside)
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
        raise UserError(f"Pulsar's jars could not be fetched ({said[:300]}); the network is needed once.") from error
