"""Everything that replaces private parts of PySpark, with what each of them saves.

| module | private API replaced | what it saves (measured) | without it |
|---|---|---|---|
| `arrow_rows` | `TransformWithStateInPySparkRowSerializer` | half of a fleet's batch: 1.7 s instead of 3.0 s | 1 |
| `raw_events` | `StreamingQueryListener._jlistener` | 135 ms of processor time per batch | 2 |
| `state_calls` | `StatefulProcessorApiClient` | a third of the latency: 391 ms become 277 ms with 100 clusters | 3 |

1. PySpark makes one Arrow batch per key, and converts it cell by cell.
2. PySpark asks the JVM for each field of a batch's progress.
3. PySpark waits for the JVM four times per key.

Measured for 1,000 clusters of 12 brokers, 3,000 readings per batch, if not said otherwise; docs/performance.md has the
other candidates.

They are used only if `stream.spark_internals` is `auto` and the running PySpark is one of `TESTED`. Otherwise the query
uses the public API alone, and decides the same, byte for byte (`tests/system/test_spark_internals.py`).
"""

import pyspark

from streaming.settings import SparkInternals

TESTED = frozenset({"4.2.1"})
"""Versions of PySpark with which these modules were tested."""


def are_used(setting: SparkInternals) -> bool:
    """Whether to use these modules in this process."""
    return setting is SparkInternals.AUTO and pyspark.__version__ in TESTED
