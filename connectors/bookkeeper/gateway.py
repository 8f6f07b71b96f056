"""A JVM with the real BookKeeper client, driven over Py4J; it ends with this process and is restarted on demand.

Janino, the compiler that PySpark ships for Spark's generated code, compiles our Java code at the start. So a Java 17
runtime is enough, and no JDK is needed.
"""

import itertools
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import structlog
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JError, Py4JJavaError

from policies.units import UserError, without_settings

START_SECONDS = 30.0
"""Limit of the JVM's start, which takes half a second."""
ANSWER_SECONDS = 30.0
"""Limit of one call. Every call returns in a fraction of that, so a JVM that takes longer is dead."""

_WAIT_MS = 10_000
"""How long a call waits for the answer of a request before the next call asks again."""
_NUMBERS = itertools.count()
"""Names of requests."""

_JAVA = Path(__file__).parent / "java"
_PACKAGE = "headgate"
_COPIER = "LedgerCopier"
_NEEDED = ("bookkeeper-server-", "circe-checksum-", "py4j", "janino-", "commons-compiler-")
_CONSOLE_TAIL_BYTES = 4096
_EXIT_SECONDS = 1.0

_LOG4J = """\
status = error
name = headgate-bookkeeper
shutdownHook = disable
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p [%t] %m (%c{1})%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""

# Py4J logs a traceback for every attempt to reach a dead JVM; our own errors name the cause.
logging.getLogger("py4j.java_gateway").setLevel(logging.CRITICAL)
logging.getLogger().addFilter(lambda record: record.msg != "Exception while sending command.")

_log = structlog.get_logger(__name__)


class JvmDiedError(Exception):
    """The JVM ended or does not answer; the next use starts another one. The message has its last console lines."""


class JavaError(Exception):
    """Java threw an unexpected exception; the message is Java's."""


def support_jars() -> tuple[Path, ...]:
    """Return the additional jars: Py4J's, and Janino's from PySpark's folder.

    Raises:
        UserError: this installation lacks them.
    """
    spark = find_spec("pyspark")  # finds its folder without an import
    folders = [Path(folder) / "jars" for folder in (spark.submodule_search_locations or () if spark else ())]
    found = [jar for folder in folders for name in ("janino-*", "commons-compiler-*") for jar in folder.glob(name)]
    if len(found) != 2:
        raise UserError(
            "the Java compiler of PySpark's jars (janino) is not there: install headgate's requirements again."
        )
    return (Path(find_jar_path()), *sorted(found))


class BookKeeperJvm:
    """Starts at the first use, and again after its JVM died. Safe to use from many threads; close it.

    Args:
        java: the launcher of Java 17 or newer.
        jars: BookKeeper's jars and `support_jars()`.
        run_dir: this JVM's own folder, for temporary files and for `console.log` with its output since the start.
        heap_mebibytes: size of the heap; buffers outside the heap may take as much again.

    Raises:
        UserError: a jar is missing among `jars`.
    """

    def __init__(self, java: Path, jars: Sequence[Path], run_dir: Path, *, heap_mebibytes: int = 256) -> None:
        for name in _NEEDED:
            if not any(jar.name.startswith(name) for jar in jars):
                raise UserError(f"no jar {name}*.jar was given: pass ensure_jars('bookkeeper', …) and support_jars().")
        self._java = java
        self._jars = tuple(jars)
        self._run_dir = run_dir.absolute()
        self._heap_mebibytes = heap_mebibytes
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: Any = None
        self._copiers: Any = None  # the Java class
        self._exit_reason = "it was closed"
        self._generation = 0  # counts the starts; objects of an earlier JVM are gone

    @property
    def pid(self) -> int | None:
        """Its process id; None if it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def new_copier(self, settings: str) -> "RemoteCopier":
        """Start the JVM if it does not run, and make a `LedgerCopier` in it.

        `settings` are JSON for its Java constructor.

        Raises:
            JvmDiedError: the JVM cannot be started, or died again.
            JavaError: the settings are wrong.
        """
        with self._lock:
            self._ensure()
            gateway, copiers, generation = self._gateway, self._copiers, self._generation

        def make() -> Any:
            signature = gateway.new_array(gateway.jvm.java.lang.Class, 1)
            signature[0] = gateway.jvm.java.lang.Class.forName("java.lang.String")
            arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
            arguments[0] = settings
            return copiers.getConstructor(signature).newInstance(arguments)

        return RemoteCopier(self, generation, self.call(generation, make))

    def call(self, generation: int, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of a Java object that was made in the JVM of a generation.

        Raises:
            JvmDiedError: that JVM is gone or hangs; a JVM that hangs is killed.
            JavaError: the method threw an exception.
        """
        if not self.is_current(generation):
            raise JvmDiedError(self._end_lost(generation, ConnectionResetError("it has ended")))
        try:
            return method(*arguments)
        except Py4JJavaError as error:
            raise JavaError(str(error.java_exception)) from None
        except (Py4JError, OSError) as error:  # no answer, or the answer of another JVM without this object
            why = self._end_lost(generation, error)
        # Outside of the handler: our exception lives longer, and its context would keep Py4J's socket open.
        raise JvmDiedError(why)

    def is_current(self, generation: int) -> bool:
        """Whether the JVM of a generation still runs."""
        return generation == self._generation and self.pid is not None

    def close(self) -> None:
        """End the JVM; harmless if it does not run."""
        with self._lock:
            self._end()

    def _ensure(self) -> None:
        if self.pid is None or self._gateway is None:
            self._end()
            self._start()

    def _start(self) -> None:
        started = time.monotonic()
        (self._run_dir / "tmp").mkdir(parents=True, exist_ok=True)
        (self._run_dir / "log4j2.properties").write_text(_LOG4J)
        with (self._run_dir / "console.log").open("wb") as console:
            process = subprocess.Popen(  # noqa: S603  # the launcher we were given, no shell
                self._command(),
                cwd=self._run_dir,
                stdin=subprocess.PIPE,  # the JVM ends at the end of its input, so also when this process dies
                stdout=subprocess.PIPE,
                stderr=console,
                env=without_settings(os.environ),
                start_new_session=True,  # a terminal's Ctrl-C must reach only this process, which ends the JVM
            )
        self._process = process
        try:
            self._gateway = _connect(process)
            self._copiers = _compiled(self._gateway, _COPIER)
        except (Py4JError, OSError, ValueError) as error:
            details = self._exit_details(process, error)
            self._end()
            raise JvmDiedError(f"the JVM of the BookKeeper client does not start: {details}") from None
        self._generation += 1
        _log.info("BookKeeper JVM started", pid=process.pid, seconds=round(time.monotonic() - started, 2))

    def _command(self) -> list[str]:
        memory = (f"-Xmx{self._heap_mebibytes}m", f"-XX:MaxDirectMemorySize={self._heap_mebibytes}m")
        return [
            str(self._java),
            *memory,
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Djava.io.tmpdir={self._run_dir / 'tmp'}",
            f"-Dlog4j2.configurationFile={self._run_dir / 'log4j2.properties'}",
            "-Dio.netty.tryReflectionSetAccessible=true",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
            "-cp",
            os.pathsep.join(str(jar) for jar in self._jars),
            "py4j.GatewayServer",
            "--die-on-broken-pipe",
            "--enable-auth",
            "0",
        ]

    def _end_lost(self, generation: int, error: BaseException) -> str:
        """End the failed JVM, unless another thread has replaced it, and return the reason."""
        with self._lock:
            if generation != self._generation:
                return "the JVM of the BookKeeper client is gone: another one runs by now"
            if self._process is not None:
                self._exit_reason = self._exit_details(self._process, error)
                _log.warning("BookKeeper JVM lost", pid=self._process.pid, why=self._exit_reason)
                self._end()
            return f"the JVM of the BookKeeper client is gone: {self._exit_reason}"

    def _end(self) -> None:
        gateway, self._gateway, self._copiers = self._gateway, None, None
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if gateway is not None:
            with suppress(Py4JError, OSError):
                gateway.close()

    def _exit_details(self, process: "subprocess.Popen[bytes]", error: BaseException) -> str:
        """Return how the JVM ended, with its last console lines if it ended by itself."""
        try:
            code = process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it hangs ({' '.join(str(error).split())[:200]})"
        if code < 0:
            return f"it was killed by signal {-code}"
        with suppress(OSError), (self._run_dir / "console.log").open("rb") as console:
            console.seek(max(0, console.seek(0, os.SEEK_END) - _CONSOLE_TAIL_BYTES))
            lines = console.read().decode(errors="replace").splitlines()
            return f"exit code {code}; {' / '.join(line.strip() for line in lines[-2:])[:300] or 'it said nothing'}"
        return f"exit code {code}"


class RemoteCopier:
    """A `LedgerCopier` in a JVM; every method raises as `BookKeeperJvm.call` does."""

    def __init__(self, jvm: BookKeeperJvm, generation: int, java: Any) -> None:
        self._jvm = jvm
        self._generation = generation
        self._java = java

    @property
    def is_usable(self) -> bool:
        """Whether its JVM still runs."""
        return self._jvm.is_current(self._generation)

    def run(self, request: str) -> str:
        """Carry out a request, and return its answer, both in JSON."""
        name = str(next(_NUMBERS))
        while (answer := self._jvm.call(self._generation, self._java.run, name, request, _WAIT_MS)) is None:
            pass  # each call shows that the JVM is alive, however long the request takes
        return str(answer)

    def limit(self, bytes_per_second: int) -> None:
        """Limit the bytes per second from now on; 0 is no limit."""
        self._jvm.call(self._generation, self._java.limit, bytes_per_second)

    def close(self) -> None:
        """End its work and its clients."""
        self._jvm.call(self._generation, self._java.close)


def _connect(process: "subprocess.Popen[bytes]") -> JavaGateway:
    """Return the gateway; the process prints its port and token first."""
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        assert process.stdout is not None  # noqa: S101  # a pipe was asked for
        port, token = (process.stdout.readline().decode().strip() for _ in range(2))
    finally:
        timer.cancel()
    parameters = GatewayParameters(
        port=int(port),
        auth_token=token,
        read_timeout=ANSWER_SECONDS,
        # A JVM has only a few objects, so a request for each object that Python drops is not worth it.
        enable_memory_management=False,
    )
    return JavaGateway(gateway_parameters=parameters)


def _compiled(gateway: JavaGateway, name: str) -> Any:
    """Compile and load one of our Java classes."""
    source = _JAVA / f"{name}.java"
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(str(source), gateway.jvm.java.io.StringReader(source.read_text()))
    return compiler.getClassLoader().loadClass(f"{_PACKAGE}.{name}")
