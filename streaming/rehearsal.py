"""Warms up a stand-by: runs one throw-away micro-batch, so that its first real batch is fast.

Most of what a query's first batch takes is done once per process: classes are loaded, code is compiled, Python workers
import their modules. A stand-by does that while it waits, with the same query on a temporary checkpoint. It reads one
record of each topic, as any consumer may, and discards what it decides.
"""

import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from streaming.host import PolicyHost
from streaming.query import Wiring, decided
from streaming.settings import StreamSettings

_NAME = "headgate-rehearsal"
_LOOK_SECONDS = 0.1
_LONGEST_SECONDS = 120.0
"""In topics that are all empty there is nothing to rehearse with."""


def rehearse(
    spark: SparkSession, wiring: Wiring, host: PolicyHost, settings: StreamSettings, over: threading.Event
) -> bool:
    """Run one micro-batch of the query; nothing of it stays but what the processes have learnt.

    Args:
        spark: the session, of which executors see this machine's folders.
        wiring: that of the query, whose checkpoint is left alone.
        host: the policies.
        settings: those of the query.
        over: set when there is no more time for it.

    Returns:
        Whether the batch came to its end.
    """
    scratch: Path = spark.sparkContext._gateway.scratch.path  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory(prefix="rehearsal-", dir=scratch, ignore_cleanup_errors=True) as folder:
        own = replace(wiring, checkpoint_dir=Path(folder) / "checkpoint")
        sparing = settings.model_copy(update={"max_records_per_batch": 1})  # of each partition one, as Spark does it
        writer = decided(spark, own, host, sparing).writeStream.format("noop").queryName(_NAME)
        query = (
            writer.outputMode("append")
            .option("checkpointLocation", Path(own.checkpoint_dir).as_uri())
            .trigger(processingTime="1 hour")
            .start()
        )
        until = time.monotonic() + _LONGEST_SECONDS
        try:
            while query.lastProgress is None:
                if not query.isActive or time.monotonic() > until or over.wait(_LOOK_SECONDS):
                    return False
            return True
        finally:
            query.stop()
