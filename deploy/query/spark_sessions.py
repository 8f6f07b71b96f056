"""Starts Spark sessions, the first one ahead of its use."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deploy.java.jars import fetch_jars
from deploy.java.jvm import find_java
from deploy.query.health import cause_in_one_line
from deploy.settings.application import Settings
from streaming.session import is_alive, require_startable, start_session, stop_session

_log = structlog.get_logger(__name__)

_UNTAKEN_SECONDS = 5.0
"""A process that has not used its session for this time after its start is a stand-by."""


class SparkSessions:
    """Starts Spark sessions; the first one ahead of its use, while Kafka starts or topics are checked.

    Raises:
        UserError: Java or the jars are missing and cannot be fetched, or the data folder cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        find_java()
        self._settings = settings
        self._log_file = settings.create_data_dir() / "spark.log"
        self._jars = fetch_jars(["spark"], settings.jars_dir)[0]
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="spark-start")
        self._taken = threading.Event()
        self._first: Future[SparkSession] | None = self._starter.submit(self._start)

    def open(self) -> SparkSession:
        """Return the session that was started ahead if it is still alive, else a new one."""
        self._taken.set()
        first, self._first = self._first, None
        if first is None:
            return self._start()
        session = first.result()
        if is_alive(session):
            return session
        stop_session(session)
        return self._start()

    def start_ahead(self) -> None:
        """Start a session in the background that `open` will return, for a stand-by."""
        if self._first is None:
            self._taken = threading.Event()
            self._first = self._starter.submit(self._start)

    def while_untaken(self, use: Callable[[SparkSession, threading.Event], None]) -> None:
        """Use the session that was started ahead, if `open` does not take it for a while.

        Args:
            use: called with the session and an event that is set when `open` takes the session: then it must stop.
        """
        if self._first is not None:
            self._starter.submit(self._use, use, self._first, self._taken)

    def _use(
        self,
        use: Callable[[SparkSession, threading.Event], None],
        started: Future[SparkSession],
        taken: threading.Event,
    ) -> None:
        session = started.result()
        if taken.wait(_UNTAKEN_SECONDS):
            return
        try:
            use(session, taken)
        except (Py4JError, PySparkException, OSError) as error:  # the query starts without warm-up
            _log.info("Spark was not warmed up", reason=cause_in_one_line(error))

    def close(self) -> None:
        """Stop the session that was started ahead, if it was not used."""
        self._taken.set()
        first, self._first = self._first, None
        if first is not None:
            stop_session(first.result())
        self._starter.shutdown()

    def _start(self) -> SparkSession:
        session = start_session(self._settings.stream, self._jars, self._log_file)
        _log.info("Spark is started")
        return session


@contextmanager
def started_ahead(settings: Settings) -> Iterator[SparkSessions]:
    """Yield Spark sessions while the block runs; the first one is being started.

    Raises:
        UserError: no session can start here. It says so before a server is started, or an answer of Kafka awaited.
    """
    require_startable(settings.stream)
    sessions = SparkSessions(settings)
    try:
        yield sessions
    finally:
        sessions.close()
