"""The Spark session, in a JVM of its own or in the JVM of the `spark-submit` that started this process."""

import fcntl
import os
import pwd
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import policies
import streaming
from policies.units import UserError, human_bytes, without_settings
from streaming.conf import NO_PERF_DATA, PYTHON, launch_properties, session_properties
from streaming.settings import SparkInternals, StreamSettings, is_local, is_on_this_machine
from streaming.spark_internals import are_used

# What this process must have: without it Spark's JVM would fail again and again without a word about the cause.

LEAST_FILES = 1024
_MOST_FILES = 65_536
"""What this process asks for at most: some systems refuse more, though they name no limit."""
LEAST_BYTES = 600_000_000
"""The JVM with its heap, and one Python worker; a whole query takes about 1 GB (docs/sizing.md)."""
_CGROUP = Path("/sys/fs/cgroup")


def require_resources() -> None:
    """Raise the limit of open files as far as possible; raises UserError, with the remedy, if a limit is too low."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise UserError(
            f"user {os.geteuid()} has no name on this machine, and Spark needs one: add a line to /etc/passwd, or run "
            "Headgate as a user that has one"
        ) from None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < 4 * LEAST_FILES:  # -1: there is none
        enough = min(hard, _MOST_FILES) if hard >= 0 else _MOST_FILES
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
            soft = enough
    if 0 <= soft < LEAST_FILES:
        raise UserError(
            f"this process may open {soft} files, and the query needs {LEAST_FILES}: raise the limit (`ulimit -n "
            f"{LEAST_FILES}`; LimitNOFILE= of systemd; --ulimit nofile= of Docker)"
        )
    for limit_bytes, remedy in _memory_limits():
        if limit_bytes < LEAST_BYTES:
            raise UserError(
                f"this process may use {human_bytes(limit_bytes)} of memory, and the query needs "
                f"{human_bytes(LEAST_BYTES)} to start, 1.0 GB to run: raise the limit ({remedy})"
            )


def _memory_limits() -> Iterator[tuple[int, str]]:
    """The limits in bytes of this process, its control group and those around it, each with the setting to raise."""
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space != resource.RLIM_INFINITY:
        yield address_space, "`ulimit -v`"
    own = ""
    with suppress(OSError):
        own = Path("/proc/self/cgroup").read_text().partition("0::")[2].partition("\n")[0]
    folder = _CGROUP / own.lstrip("/")
    files = [each / "memory.max" for each in (folder, *folder.parents) if each.is_relative_to(_CGROUP)]
    for file in (*files, _CGROUP / "memory" / "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # it is missing, or names no limit
            limit = int(file.read_text())
            yield limit, "MemoryMax= of systemd; resources.limits.memory of Kubernetes; --memory of Docker"


_log = structlog.get_logger(__name__)

_launch_gateway: Any = launch_gateway  # has no types
_JVM_END_SECONDS = 10.0
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The variable that spark-submit sets for a process that it starts; its JVM is then the driver's."""
_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_LOCK = "lock"
_UTF8 = re.compile("utf-?8", re.IGNORECASE)
_CAUSE = re.compile("error|exception|could not|cannot|unrecognized|not enough", re.IGNORECASE)
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
"""Time of each file in the shipped code: equal code gives equal bytes."""


class JvmStartError(OSError):
    """Spark's JVM could not be used; the message has the cause that it printed."""


class Scratch:
    """A new folder for what Spark needs only while it runs: sockets, native libraries, copies of state.

    A killed process removes nothing. So the next start on the same data removes the folders of dead processes. A lock,
    which ends with its process, distinguishes them from live ones. Only our own user can read the folder.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(mode=0o700, exist_ok=True)
        with (parent / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _remove_abandoned(parent)
            self.path = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
            self._lock = (self.path / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove the folder, if it still exists."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob("run-*"):
        try:
            with (folder / _LOCK).open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError:  # its process was killed before it made the lock; the parent's lock shows that it is not live
            pass
        shutil.rmtree(folder, ignore_errors=True)


def start_session(settings: StreamSettings, jars: Sequence[Path], log_file: Path) -> SparkSession:
    """Start the session, and its JVM unless spark-submit has started it.

    The folder of `log_file`, Spark's own log, exists. The folder `spark-tmp` beside it holds what Spark and its Python
    workers would leave in /tmp when they are killed. Raises UserError for what only the user can provide.
    """
    require_startable(settings)
    if is_on_this_machine(settings.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = Scratch(log_file.parent / "spark-tmp")
    launch = launch_properties(settings, jars, log_file, scratch.path)
    with log_file.with_suffix(".console").open("ab") as console, _inherited_environment(scratch.path):
        # The output of JVM and Python workers goes to a file: the terminal is for headgate's own.
        launched = SparkConf(loadDefaults=False).setAll(list(launch.items()))
        began = console.tell()
        try:
            gateway = _launch_gateway(launched, {"stdout": console, "stderr": console})
        except PySparkException as error:
            scratch.close()
            lines = Path(console.name).read_bytes()[began:].decode(errors="replace").splitlines()
            told = next((line.strip() for line in lines if _CAUSE.search(line)), "it gave no reason")
            why = f"Spark's JVM did not start: {told} ({console.name} has its whole output)"
            raise JvmStartError(why) from error
    gateway.scratch = scratch
    try:
        return _session(settings, gateway)
    except Py4JJavaError as error:
        cause = str(error)  # Py4J asks the JVM for it, which ends now
        _close(gateway)
        raise JvmStartError(cause) from None
    except BaseException:
        _close(gateway)
        raise


def _session(settings: StreamSettings, gateway: Any) -> SparkSession:
    scratch: Path = gateway.scratch.path
    conf = SparkConf(_jvm=gateway.jvm)  # with all properties of the JVM, also the launcher's
    given = {**dict(conf.getAll()), **settings.spark}
    master = _master(settings, given)
    # The workers' Python is ours, or on other machines the configured one.
    configured = None if is_local(master) else given.get(PYTHON) or os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = configured or sys.executable
    conf.setAll([*settings.spark.items(), *session_properties(settings, master, given, scratch).items()]).setMaster(
        master
    )
    session = SparkSession(SparkContext(conf=conf, gateway=gateway))
    if is_submitted() and not gateway.jvm.org.apache.spark.util.Utils.classIsLoadable(_CONNECTOR):
        raise UserError(
            "spark-submit was given no jars of the Kafka connector: take the line that `headgate decide "
            "--print-submit` prints"
        )
    if settings.spark_internals is SparkInternals.AUTO and not are_used(settings.spark_internals):
        _log.info("the query uses Spark's public API only: its internals were not tested", pyspark=pyspark.__version__)
    if not is_local(master):
        # The executors then run this version, whichever version their environment has.
        session.sparkContext.addPyFile(str(zip_code(scratch)))
    return session


def zip_code(folder: Path) -> Path:
    """Write `headgate-code.zip` with all modules that an executor may import."""
    file = folder / "headgate-code.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (policies, streaming):
            root = Path(package.__path__[0])
            for source in sorted(root.rglob("*.py")):
                entry = zipfile.ZipInfo(f"{root.name}/{source.relative_to(root).as_posix()}", _ZIP_TIME)
                archive.writestr(entry, source.read_bytes(), zipfile.ZIP_DEFLATED)
    return file


def is_submitted() -> bool:
    """Whether spark-submit has started this process."""
    return _SUBMITTED in os.environ


def set_defaults(session: SparkSession, properties: Mapping[str, str]) -> None:
    """Set properties of a running session, except those that the settings file or the launcher has set."""
    given = session.sparkContext.getConf()
    for name, value in properties.items():
        if not given.contains(name):
            session.conf.set(name, value)


def stop_session(session: SparkSession) -> None:
    """Stop the session and its JVM, even if that has died; this process can then start another."""
    gateway: Any = session.sparkContext._gateway
    if is_alive(session):
        session.stop()
    _close(gateway)


def _close(gateway: Any) -> None:
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    if (jvm := gateway.proc) is not None:  # otherwise it is spark-submit's, and ends after this process
        jvm.stdin.close()  # the JVM ends when this pipe does
        try:
            jvm.wait(_JVM_END_SECONDS)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()
    gateway.scratch.close()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def kill_jvm(session: SparkSession) -> None:
    """Kill a JVM that no longer answers; every call that waits for it then fails."""
    gateway: Any = session.sparkContext._gateway
    if gateway.proc is not None:
        gateway.proc.kill()
    elif (submitter := os.getppid()) > 1:  # spark-submit's, which waits for this process
        os.kill(submitter, signal.SIGKILL)


def is_alive(session: SparkSession) -> bool:
    """Whether its JVM answers."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, AttributeError, OSError):
        return False


@contextmanager
def _inherited_environment(folder: Path) -> Iterator[None]:
    """Set the environment that the JVM and its Python workers inherit: temporary files here, and no settings."""
    mine = {"TMPDIR": str(folder), "SPARK_LAUNCHER_OPTS": NO_PERF_DATA}
    locale = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
    if sys.getfilesystemencoding() == "utf-8" and not _UTF8.search(locale):
        mine["LC_ALL"] = "C.UTF-8"  # Java would not find files with names beyond ASCII
    settings = os.environ.keys() - without_settings(os.environ).keys()
    before, tempdir = {name: os.environ.get(name) for name in (*mine, *settings)}, tempfile.tempdir
    os.environ.update(mine)
    for name in settings:
        del os.environ[name]
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = tempdir
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def require_startable(settings: StreamSettings) -> None:
    """Refuse settings for which Spark would give the reason in its log only, with UserError."""
    if not is_submitted():
        require_resources()
    if settings.master == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & set(os.environ):
        raise UserError("stream.master: yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR in the environment")


def _master(settings: StreamSettings, given: Mapping[str, str]) -> str:
    """The Spark master; raises UserError if spark-submit and the settings name different ones."""
    if not is_submitted():
        return settings.master
    submitted = given.get("spark.master", settings.master)
    if "master" in settings.model_fields_set and settings.master != submitted:
        raise UserError(
            f"stream.master is {settings.master}, and spark-submit was given {submitted}: leave one of them out, or "
            "take the line that `headgate decide --print-submit` prints"
        )
    return submitted
