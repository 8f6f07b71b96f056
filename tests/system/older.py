"""Older versions of Kafka, ZooKeeper and Pulsar: their jars, an older broker, and the record of what works with them.

`python -m tests.system.older` fetches all jars. Only jars with a known digest are accepted.
"""

import json
import re
import sys
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from connectors.kafka.clients import LOGGER
from deploy.java.jvm import JvmCommand
from deploy.settings.application import default_cache_dir
from policies.units import UserError
from tests.system.maven import ALONE, dependency, ensure_fetched, pom_of
from tests.system.pulsar_jars import FOR_ZOOKEEPER, LEFT_OUT, bom
from tests.system.server import JvmServer, run_tool
from tests.system.small_servers import LOOPBACK, small_jvm, write_properties
from tests.system.zookeeper import free_port

DIGESTS = {
    "kafka-3.3.2": "d42d5b500b5c44e93c11ae95958be2305da3f77a89d64f0a65ee38c24a6782c5",
    "kafka-3.6.2": "bade5b8ad8f4e7704d1de53668ad1319857f9512f8340497dbcc821236c8871d",
    "kafka-3.9.1": "4a7187d76d86960c8cc101e20d6701170ab2b03708681e112fea247f3bd8e3a1",
    "kafka-4.0.0": "d099366d8d844b72cd134e7091b9a98eb2a3fbdf38bc33f96fe26d318a9a0708",
    "pulsar-2.10.5": "258c5eaaa43c2bd3db20b2d27e262876299f65efffebb795d174f44cddfe6d77",
    "pulsar-3.0.7": "1a320ba2869c871e8e4e85987acc090553fc9b3c4200c752cf641a2ff466cf5c",
    "pulsar-4.0.7": "3757738662d822a718dc2cd59ebd254aa39c0c318a9e1a9942ca67d12ef3fb50",
    "zookeeper-3.6.4": "fe0a7bede2acfa9c5431c4076e5fb58abe03e91d682ce68ca0fcc5d9309e9f67",
    "zookeeper-3.7.2": "24b1b21ef1e1de087fe3ff5d661ad71accf8813baa2308fbb834daa0420ea29c",
    "zookeeper-3.8.4": "7824299375dbd9951292e868732766659b2d0a4b5a5277fa73d70fbf360cb69f",
    "zookeeper-3.9.3": "fd14058cdf40a1a2568766fec1a5c66e8aa442d0f46a47ee3114750f375c0bc6",
}
"""Of each version's jars together (`tests.system.maven.digest`)."""

FOR_ADMIN_SERVER = (
    dependency("org.eclipse.jetty", "jetty-servlet", "9.4.58.v20250814"),
    dependency("com.fasterxml.jackson.core", "jackson-databind", "2.18.9"),
)
"""What ZooKeeper before 3.9 expects a distribution to add."""


def ensure_older_jars(name: str, cache_dir: Path) -> tuple[Path, ...]:
    """Return the jars of a version such as `kafka-3.3.2`, sorted by name; fetch them first if they are missing.

    Raises:
        UserError: they cannot be fetched, or their digest is another one.
    """
    # A folder of its own for each set of jars, so that a cache from before another set was tested does no harm.
    expected = DIGESTS[name]
    return ensure_fetched(cache_dir / f"{name}-{expected[:8]}", _pom(*name.rsplit("-", 1)), LEFT_OUT, expected)


def _pom(product: str, version: str) -> str:
    match product:
        case "kafka":
            # What Kafka 3 and Kafka 4 log with themselves.
            is_older = version.startswith("3.")
            slf4j = dependency("org.slf4j", "slf4j-reload4j", "1.7.36")
            log4j = dependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
            return pom_of((dependency("org.apache.kafka", "kafka_2.13", version), slf4j if is_older else log4j))
        case "zookeeper":
            return pom_of((dependency("org.apache.zookeeper", "zookeeper", version), *FOR_ZOOKEEPER, *FOR_ADMIN_SERVER))
        case _:
            broker = dependency("org.apache.pulsar", "pulsar-broker", version)
            return pom_of((broker, *FOR_ZOOKEEPER), [bom(version)])


def _each() -> Iterator[str]:
    for name in DIGESTS:
        try:
            ensure_older_jars(name, older_cache())
            yield f"{name}: as tested\n"
        except UserError as error:
            yield f"{name}: {error}\n"


def older_cache() -> Path:
    return default_cache_dir().parent / "older"


HEAP_MEBIBYTES = 160

RESULTS = Path(__file__).parents[1] / "data/compatibility.json"
"""By product, version and feature: ``works``, or what it cannot do."""

MANIFEST = Path(__file__).parents[2] / "deploy" / "java" / "jars.sha256"


def of_today(artifact: str) -> str:
    """The version of a jar that comes with Headgate, of its own broker or of the ZooKeeper that tests start."""
    found = re.search(rf"/{re.escape(artifact)}-(\d[\w.]*)\.jar$", MANIFEST.read_text(), re.MULTILINE)
    assert found is not None, artifact
    return found[1]


def ensure_kafka_tools() -> tuple[Path, ...]:
    """Return the jar of the tools of today's Kafka that its broker leaves out; fetch it first if it is missing."""
    version = of_today("kafka_2.13")
    pom = pom_of([dependency("org.apache.kafka", "kafka-tools", version, ALONE)])
    return ensure_fetched(default_cache_dir().parent / f"kafka-tools-{version}", pom)


class OlderKafka(JvmServer):
    """A broker that is its own controller, of any Kafka from 3.3 on; its ports stay the same over restarts.

    Args:
        folder: of its own.
        jars: `ensure_older_jars("kafka-…", …)`.
    """

    def __init__(self, folder: Path, jars: Sequence[Path]) -> None:
        super().__init__(folder)
        self.port, self._controller_port = free_port(), free_port()
        self._jars = tuple(jars)

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def _prepare(self) -> JvmCommand:
        listeners = f"PLAINTEXT://{LOOPBACK}:{self.port},CONTROLLER://{LOOPBACK}:{self._controller_port}"
        config = write_properties(
            self.folder / "server.properties",
            {
                "process.roles": "broker,controller",
                "node.id": 1,
                # Not by bootstrap servers, which only 3.9 and later know.
                "controller.quorum.voters": f"1@{LOOPBACK}:{self._controller_port}",
                "listeners": listeners,
                "advertised.listeners": listeners.partition(",")[0],
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": self.folder / "logs",
                "offsets.topic.num.partitions": 1,
                "offsets.topic.replication.factor": 1,
                "log.cleaner.dedupe.buffer.size": 2_097_152,
                "log.index.size.max.bytes": 102_400,
            },
        )
        flags = small_jvm(self.folder, HEAP_MEBIBYTES)
        if not (self.folder / "logs/meta.properties").exists():
            cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            arguments = ("format", "--ignore-formatted", f"--cluster-id={cluster_id}", "--config", str(config))
            format_it = JvmCommand("kafka.tools.StorageTool", self._jars, flags, arguments)
            run_tool(format_it, self.folder / "format")
        return JvmCommand("kafka.Kafka", self._jars, flags, (str(config),))

    def _serves(self) -> bool:
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers}, logger=LOGGER)
        try:
            return set(client.list_topics(timeout=2.0).brokers) == {1}
        except KafkaException:
            return False


def record(product: str, version: str, tried: str, seen: str = "works") -> None:
    """Note a result for `docs/compatibility.md`; each run replaces the results it repeats."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known.setdefault(product, {}).setdefault(version, {})[tried] = seen
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.stdout.writelines(_each())
