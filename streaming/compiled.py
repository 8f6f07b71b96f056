"""Compiles our own Java at run time with Janino, which Spark ships for its generated code."""

import zipfile
from pathlib import Path
from typing import Any

_SOURCES = Path(__file__).parent / "java"


def compiled(jvm: Any, name: str) -> Any:
    """A class of `streaming/java`, and those within it: a Janino compiler, which loads them and has their bytes.

    Args:
        jvm: the driver's.
        name: of its file, without `.java`.
    """
    source = _SOURCES / f"{name}.java"
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(str(source), jvm.java.io.StringReader(source.read_text()))
    return compiler


def packed_classes(compiler: Any, file: Path) -> Path:
    """Write what was compiled as a jar, for executors."""
    with zipfile.ZipFile(file, "w") as jar:
        for name, code in compiler.getBytecodes().items():
            jar.writestr(f"{name.replace('.', '/')}.class", code)
    return file
