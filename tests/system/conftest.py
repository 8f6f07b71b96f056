"""Real servers for the system tests: started here, without Docker, or where asked by testcontainers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import ensure_jars
from deploy.java.jvm import find_java
from deploy.settings.application import default_cache_dir
from policies.units import UserError
from tests.progress import longest_first
from tests.system.older import of_today
from tests.system.pulsar_jars import ensure_pulsar_admin_jars, ensure_pulsar_jars
from tests.system.zookeeper import ZooKeeper, free_port

HANGS_SECONDS = 1800
"""A test that takes so long hangs where nothing is awaited with `eventually`, which gives up by itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder as a system test, and run the longest files first."""
    for item in items:
        if Path(item.fspath).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.system)
            item.add_marker(pytest.mark.timeout(HANGS_SECONDS))
    items[:] = longest_first(items)


@pytest.fixture(scope="session")
def kafka_jars() -> tuple[Path, ...]:
    """The broker's jars; skips with the reason without Java or network."""
    try:
        find_java()
        ensure_jars("spark", default_cache_dir())
        return ensure_jars("kafka", default_cache_dir())
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def bookkeeper_jars() -> tuple[Path, ...]:
    """The jars of ZooKeeper and of bookies; skips with the reason without Java or network."""
    try:
        find_java()
        return ensure_jars("bookkeeper", default_cache_dir())
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pulsar_jars() -> tuple[Path, ...]:
    """Pulsar's jars; skips with the reason without Java, Maven or network."""
    try:
        find_java()
        return ensure_pulsar_jars(default_cache_dir().parent)
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pulsar_admin_jars() -> tuple[Path, ...]:
    """The jars of `pulsar-admin`; skips with the reason without Java, Maven or network."""
    try:
        find_java()
        return ensure_pulsar_admin_jars(default_cache_dir().parent)
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def zookeeper(bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A shared ZooKeeper. Each test uses its own chroot, and starts its own server only to harm it."""
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), bookkeeper_jars) as server:
        yield server


@pytest.fixture(scope="session")
def loop_kafka(
    kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """Bootstrap servers of the loop's shared Kafka. Each test uses its own topic prefix."""
    if request.config.getoption("--containers"):
        yield from _from_container()
        return
    folder = tmp_path_factory.mktemp("loop-kafka")
    with EmbeddedKafka(folder, kafka_jars, heap_mebibytes=192) as kafka:
        yield kafka.bootstrap_servers


def _from_container() -> Iterator[str]:
    from testcontainers.kafka import KafkaContainer

    with KafkaContainer(f"apache/kafka:{of_today('kafka_2.13')}").with_kraft() as container:
        yield container.get_bootstrap_server()


@pytest.fixture(name="free_port")
def _free_port() -> int:
    return free_port()
