"""Binds each partition of the state to its own Python worker.

Spark gives a task whichever worker became free first. With two partitions a key would reach the wrong process in every
other batch; its state would be read and decoded again and the policy's caches rebuilt, which doubles the time of a
fleet's batch. Spark shares workers only between tasks with equal environments, so the environments are made to differ.
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
