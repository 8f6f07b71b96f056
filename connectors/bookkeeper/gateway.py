"""A JVM with the real BookKeeper client, driven over Py4J; it ends with this process and is restarted on demand.

Janino, the compiler that PySpark ships for Spark's generated code, compiles our Java code at the start. So a Java 17
runtime is enough, and no JDK is needed.
"""

import itertools
import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

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

_COPIER = Path(__file__).parent / "java" / "LedgerCopier.java"
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

    Raises UserError if this installation lacks them.
    """
    spark = find_spec("pyspark")  # finds its folder without an import
    folders = [Path(folder) / "jars" for folder in (spark.submodule_search_locations or () if spark else ())]
    found = [jar for folder in folders for name in ("janino-*", "commons-compiler-*") for jar in folder.glob(name)]
    if len(found) != 2:
        raise UserError(
            "the Java compiler of PySpark's jars (janino) is not there: install headgate's requirements again."
        )
    return (Path(find_jar_path()), *sorted(found))


class LiveJvm(NamedTuple):
    """A JVM that was started."""

    process: "subprocess.Popen[bytes]"
    gateway: JavaGateway
    copier: Any
    """Its `LedgerCopier`; None if it was started without settings."""


class BookKeeperJvm:
    """Starts at the first use, and again after its JVM died. Safe to use from many threads; close it.

    Args:
        java: the launcher of Java 17 or newer.
        jars: BookKeeper's jars; `support_jars` are added.
        run_dir: this JVM's own folder, for temporary files and for `console.log` with its output since the start.
        heap_mebibytes: size of the heap; buffers outside the heap may take as much again.

    Raises UserError as `support_jars` does.
    """

    def __init__(self, java: Path, jars: Sequence[Path], run_dir: Path, *, heap_mebibytes: int = 256) -> None:
        self._java = java
        self._jars = (*jars, *support_jars())
        self._run_dir = run_dir.absolute()
        self._heap_mebibytes = heap_mebibytes
        self._lock = threading.Lock()
        self.settings: dict[str, object] = {}
        """The settings of the `LedgerCopier` of the next JVM; without them it has none."""
        self._live: LiveJvm | None = None
        self._exit_reason = "it was closed"

    @property
    def pid(self) -> int | None:
        """Its process id; None if it does not run."""
        live = self._live
        return live.process.pid if live is not None and live.process.poll() is None else None

    def start(self) -> LiveJvm:
        """Return the JVM that runs, or start it. Raises JvmDiedError if it cannot be started."""
        with self._lock:
            if self._live is None or self.pid is None:
                self._end()
                self._live = self._launch()
            return self._live

    def run(self, request: str) -> str:
        """Have the `LedgerCopier` carry out a request, and return its answer, both in JSON.

        Raises:
            JvmDiedError: the JVM cannot be started, ends or hangs; a JVM that hangs is killed.
            JavaError: the copier threw an exception.
        """
        live, name = self.start(), str(next(_NUMBERS))
        while (answer := self._call(live, live.copier.run, name, request, _WAIT_MS)) is None:
            pass  # each call shows that the JVM is alive, however long the request takes
        return str(answer)

    def limit(self, bytes_per_second: int) -> None:
        """Limit the bytes that all copies together write in a second, from now on; 0 is no limit."""
        self.settings["bytes_per_second"], live = bytes_per_second, self._live
        if live is not None and self.pid is not None:
            with suppress(JvmDiedError, JavaError):  # the next JVM starts with the limit
                self._call(live, live.copier.limit, bytes_per_second)

    def close(self) -> None:
        """End the JVM; harmless if it does not run. The next use starts another one."""
        with self._lock:
            self._end()
            self._exit_reason = "it was closed"

    def _call(self, live: LiveJvm, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Py4JJavaError as error:
            raise JavaError(str(error.java_exception)) from None
        except (Py4JError, OSError) as error:
            why = self._end_lost(live, error)
        # Outside of the handler: our exception lives longer, and its context would keep Py4J's socket open.
        raise JvmDiedError(f"the JVM of the BookKeeper client is gone: {why}")

    def _launch(self) -> LiveJvm:
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
        try:
            gateway = _connect(process)
            live = LiveJvm(process, gateway, _make_copier(gateway, self.settings))
        except (Py4JError, OSError, ValueError) as error:
            details = self._exit_details(process, error)
            _kill(process)
            raise JvmDiedError(f"the JVM of the BookKeeper client does not start: {details}") from None
        _log.info("BookKeeper JVM started", pid=process.pid, seconds=round(time.monotonic() - started, 2))
        return live

    def _command(self) -> list[str]:
        return [
            str(self._java),
            f"-Xmx{self._heap_mebibytes}m",
            f"-XX:MaxDirectMemorySize={self._heap_mebibytes}m",
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

    def _end_lost(self, live: LiveJvm, error: BaseException) -> str:
        """End the failed JVM, unless another thread has ended it, and return the reason."""
        with self._lock:
            if live is self._live:
                self._exit_reason = self._exit_details(live.process, error)
                _log.warning("BookKeeper JVM lost", pid=live.process.pid, why=self._exit_reason)
                self._end()
            return self._exit_reason

    def _end(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            _kill(live.process)
            with suppress(Py4JError, OSError):
                live.gateway.close()

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


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


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


def _make_copier(gateway: JavaGateway, settings: dict[str, object]) -> Any:
    """Compile and load `LedgerCopier`, and make one if there are settings; only reflection reaches its class."""
    lang, compiler = gateway.jvm.java.lang, gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(str(_COPIER), gateway.jvm.java.io.StringReader(_COPIER.read_text()))
    copiers = compiler.getClassLoader().loadClass(f"headgate.{_COPIER.stem}")
    if not settings:
        return None
    signature, arguments = gateway.new_array(lang.Class, 1), gateway.new_array(lang.Object, 1)
    signature[0], arguments[0] = lang.Class.forName("java.lang.String"), json.dumps(settings)
    return copiers.getConstructor(signature).newInstance(arguments)
