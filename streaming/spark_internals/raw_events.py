"""Hands a listener the JVM's own events, which PySpark would convert by a call to the JVM for each of their fields."""

from typing import Any, ClassVar

from pyspark import SparkContext


class RawEvents:
    """Mix this into a `StreamingQueryListener`; its methods then get Py4J's objects."""

    @property
    def _jlistener(self) -> Any:
        context = SparkContext._active_spark_context
        return context._jvm.PythonStreamingQueryListenerWrapper(self)  # type: ignore[union-attr]

    class Java:
        """The interface that Py4J implements with this class."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
