"""Pulsar's Java archives, for the demo of Pulsar and the tests."""

from pathlib import Path

from tests.system.maven import dependency, ensure_fetched, pom_of

PULSAR_VERSION = "4.2.4"
ADMIN_VERSION = "4.0.8"
"""Of `pulsar-admin`: the newest one before that version whose tools are in Maven's repository."""

LEFT_OUT = (
    # Nobody here uses functions on Kubernetes or RocksDB; they are a third of the whole. Natives of other systems too.
    "-DexcludeArtifactIds=rocksdbjni,client-java,client-java-api,client-java-proto,grpc-xds",
    "-DexcludeClassifiers=osx-x86_64,osx-aarch_64,windows-x86_64",
)
"""Options for Maven."""
FOR_ZOOKEEPER = (
    # Without these a ZooKeeper server dies, or answers and lets every client time out.
    dependency("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    dependency("org.xerial.snappy", "snappy-java", "1.1.10.5"),
)
_NO_ZOOKEEPER = (
    "<exclusions><exclusion><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId></exclusion>"
    "</exclusions>"
)


def ensure_pulsar_jars(cache_dir: Path) -> tuple[Path, ...]:
    """Return the jars in `pulsar-<version>` of the cache; fetch them first if they are missing (about 1 min).

    Raises:
        UserError: they cannot be fetched.
    """
    # Pulsar's patched ZooKeeper replaces the plain one.
    broker = dependency("org.apache.pulsar", "pulsar-broker", PULSAR_VERSION, _NO_ZOOKEEPER)
    return ensure_fetched(pulsar_folder(cache_dir), pom_of((broker, *FOR_ZOOKEEPER), [bom(PULSAR_VERSION)]), LEFT_OUT)


def ensure_pulsar_admin_jars(cache_dir: Path) -> tuple[Path, ...]:
    """Return the jars of `pulsar-admin`; fetch them first if they are missing (about 20 s).

    Raises:
        UserError: they cannot be fetched.
    """
    tools = dependency("org.apache.pulsar", "pulsar-client-tools", ADMIN_VERSION)
    folder = cache_dir / f"pulsar-admin-{ADMIN_VERSION}"
    return ensure_fetched(folder, pom_of((tools,), [bom(ADMIN_VERSION)]), LEFT_OUT)


def bom(version: str) -> str:
    """The bill of materials that fixes the versions of jackson, log4j, grpc and netty."""
    return dependency("org.apache.pulsar", "pulsar", version, "<type>pom</type><scope>import</scope>")


def pulsar_folder(cache_dir: Path) -> Path:
    """Return the folder of the jars in a cache."""
    return cache_dir / f"pulsar-{PULSAR_VERSION}"
