"""Each partition of the state keeps to its own Python worker.

Spark gives a task whichever worker came free first, so with two partitions every other batch a key comes to the process
that does not know it: its state is read and decoded, and all that the policy had built on it is built anew, which makes
a batch of a fleet twice as long. A worker is shared only between tasks of equal environments: here they differ.
"""

from pathlib import Path

from pyspark import SparkContext

from streaming.compiled import compiled, packed_classes

_CLASS = "PartitionEnvironment"


def give_each_partition_its_worker(context: SparkContext, partitions: int, folder: Path) -> None:
    """For all that is planned from now on, where there are several partitions and a core for each.

    With more of them than cores it would cost more processes than can run at once, of some 100 MB each.

    Args:
        context: the driver's.
        partitions: of the state.
        folder: where a jar may lie as long as the context does.
    """
    if not 1 < partitions <= context.defaultParallelism:
        return
    compiler = compiled(context._jvm, _CLASS)
    context._jsc.addJar(str(packed_classes(compiler, folder / f"{_CLASS}.jar")))
    environment = compiler.getClassLoader().loadClass(f"headgate.{_CLASS}").newInstance()
    environment.putAll(context.environment)
    context.environment = environment
