"""Everything that replaces private parts of PySpark, with what each of them saves.

| module | private API replaced | what it saves (measured) | without it |
|---|---|---|---|
| `state_calls` | the client of the state, `StatefulProcessorApiClient` | a fleet's batch: 1.2 s instead of 6.3 s | 1 |
| `arrow_rows` | `TransformWithStateInPySparkRowSerializer` | a fleet's batch: 0.52 s instead of 0.65 s | 2 |
| `raw_events` | `StreamingQueryListener._jlistener` | 135 ms of processor time per batch | 3 |

1. A key waits for the JVM with each of its three to five state calls.
2. PySpark makes one Arrow batch per key, and converts it cell by cell.
3. PySpark asks the JVM for each field of a batch's progress.

They are used only if `stream.spark_internals` is `auto` and the running PySpark is one of `TESTED`. Otherwise the query
uses the public API alone, and decides the same, byte for byte (`tests/system/test_spark_internals.py`).
"""

import pyspark

from streaming.settings import SparkInternals

TESTED = frozenset({"4.2.0", "4.2.1"})
"""Versions of PySpark with which these modules were tested."""


def are_used(setting: SparkInternals) -> bool:
    """Whether to use these modules in this process."""
    return setting is SparkInternals.AUTO and pyspark.__version__ in TESTED
