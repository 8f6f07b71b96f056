"""Lets Spark's JVM create files on this machine without starting a process for each.

Hadoop, through which Spark writes its checkpoint, cannot set a file's permissions without a native library that PySpark
does not ship; so it runs the command `chmod`, twice for each new file. A micro-batch creates four files.
"""

from typing import Any

from streaming.compiled import compiled

_CLASS = "LocalFiles"


def make_files_without_processes(jvm: Any, conf: Any) -> None:
    """Have our own class stand for Hadoop's local file system in this JVM, where nobody has asked for that yet.

    Executors elsewhere have Hadoop's own.

    Args:
        jvm: of the driver, before there is a context.
        conf: the context's to be, as the JVM has it; what it says of umask and the like holds.
    """
    hadoop = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf)
    hadoop.setClassLoader(compiled(jvm, _CLASS).getClassLoader())
    hadoop.set("fs.file.impl", f"headgate.{_CLASS}")
    # Hadoop keeps the first one there is for all who ask later.
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), hadoop)
