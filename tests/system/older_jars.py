"""Older versions of what is watched, for tests only; only what was tested is taken.

`python -m tests.system.older_jars` fetches them all; of one that differs from `DIGESTS` it says the digest found.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.java.jars import default_cache_dir
from policies.errors import UserError
from tests.system.maven import dependency, ensure_fetched, pom_of
from tests.system.pulsar_jars import FOR_ZOOKEEPER, LEFT_OUT, bom

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
"""Of each version's jars together (`tests.system.maven.digest`)."""


def ensure_older_jars(name: str, cache_dir: Path) -> tuple[Path, ...]:
    """Return the jars of a version such as ``kafka-3.3.2``, sorted by name; fetch them first if need be.

    Raises:
        UserError: they are missing and cannot be fetched, or are not those that were tested.
    """
    return ensure_fetched(cache_dir / name, _pom(*name.rsplit("-", 1)), LEFT_OUT, DIGESTS[name])


def _pom(product: str, version: str) -> str:
    match product:
        case "kafka":
            # What Kafka 3 and Kafka 4 log with themselves.
            is_older = version.startswith("3.")
            slf4j = dependency("org.slf4j", "slf4j-reload4j", "1.7.36")
            log4j = dependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
            return pom_of((dependency("org.apache.kafka", "kafka_2.13", version), slf4j if is_older else log4j))
        case "zookeeper":
            return pom_of((dependency("org.apache.zookeeper", "zookeeper", version), *FOR_ZOOKEEPER))
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
    """Where they are kept."""
    return default_cache_dir().parent / "older"


if __name__ == "__main__":
    sys.stdout.writelines(_each())
