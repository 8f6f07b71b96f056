"""Configuration of small servers on loopback."""

from collections.abc import Mapping
from pathlib import Path

from deploy.embedded.kafka import LOOPBACK, write_properties

__all__ = ["LOOPBACK", "SMALL_BOOKIE", "SMALL_BROKER", "small_jvm", "write_properties"]

_OPENED = (
    "java.base/java.nio",
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)

_LOG4J = """\
status = error
name = small-server
shutdownHook = disable
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %-5p [%t] %m (%c{1})%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


def small_jvm(folder: Path, heap_mebibytes: int) -> tuple[str, ...]:
    """Flags of a small JVM that starts fast and logs to its console, with as much direct memory as heap."""
    folder.mkdir(parents=True, exist_ok=True)
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    return (
        f"-Xmx{heap_mebibytes}m",
        f"-XX:MaxDirectMemorySize={heap_mebibytes}m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={log4j}",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    )


# One bookie among several on a small machine: little of everything, and no fsync, because only processes are killed.
SMALL_BOOKIE: Mapping[str, str | int] = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    "journalPreAllocSizeMB": 1,
    "journalSyncData": "false",
    "journalMaxSizeMB": 16,
    "journalWriteBufferSizeKB": 64,
    "logSizeLimit": 33_554_432,
    "entryLogFilePreallocationEnabled": "false",
    "numAddWorkerThreads": 1,
    "numReadWorkerThreads": 1,
    "numLongPollWorkerThreads": 0,
    "numHighPriorityWorkerThreads": 1,
    "serverNumIOThreads": 2,
    "numJournalCallbackThreads": 1,
    "maxPendingReadRequestsPerThread": 500,
    "pageLimit": 64,
    "fileInfoMaxIdleTime": 0,
    "openFileLimit": 100,
    # Disks of test machines are often nearly full, which must not stop a bookie.
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.998",
    "minUsableSizeForEntryLogCreation": 1_048_576,
    "minUsableSizeForIndexFileCreation": 1_048_576,
    "minUsableSizeForHighPriorityWrites": 1_048_576,
    "autoRecoveryDaemonEnabled": "false",
}

SMALL_BROKER: Mapping[str, str | int] = {
    "metadataStoreOperationTimeoutSeconds": 10,
    "zookeeperSessionExpiredPolicy": "reconnect",
    "managedLedgerCacheSizeMB": 8,
    # A new ledger every five entries: where data goes shows at once.
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerMaxEntriesPerLedger": 5,
    "defaultNumberOfNamespaceBundles": 1,
    "transactionCoordinatorEnabled": "false",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
    "functionsWorkerEnabled": "false",
    "numIOThreads": 2,
    "numHttpServerThreads": 8,
    "numOrderedExecutorThreads": 2,
    "numExecutorThreadPoolSize": 2,
    "numCacheExecutorThreadPoolSize": 2,
    "numWorkerThreadsForNonPersistentTopic": 1,
    "bookkeeperClientNumWorkerThreads": 2,
    "bookkeeperClientNumIoThreads": 2,
    "bookkeeperNumberOfChannelsPerBookie": 2,
    "bookkeeperClientHealthCheckEnabled": "true",
    "brokerShutdownTimeoutMs": 5_000,
    "authorizationEnabled": "false",
    "authenticationEnabled": "false",
}
