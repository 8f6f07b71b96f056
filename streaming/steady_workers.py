"""Each partition of the state keeps to its own Python worker.

Spark gives a task whichever worker came free first, so with two partitions every other batch a key comes to the process
that does not know it: its state is read and decoded, and all that the policy had built on it is built anew, which makes
a batch of a fleet twice as long. A worker is shared only between tasks of equal environments: here they differ.
"""

from pathlib import Path

from pyspark import SparkContext

from streaming.compiled import compiled, packed_classes

_CLASS = "PartitionEnvironment"


def give_each_partition_its_worker(context: SparkContext, folder: Path) -> None:
    """For all that is planned from now on. It costs a process that forks workers for each partition.

    Args:
        context: the driver's.
        folder: where a jar may lie as long as the context does.
    """
    compiler = compiled(context._jvm, _CLASS)
    context._jsc.addJar(str(packed_classes(compiler, folder / f"{_CLASS}.jar")))
    environment = compiler.getClassLoader().loadClass(f"headgate.{_CLASS}").newInstance()
    environment.putAll(context.environment)
    context.environment = environment
