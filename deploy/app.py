"""Assembles the application: which parts run in this process, how they are wired, and in what order they stop.

Each part runs on its own thread until its stop event is set. The first part that fails ends the whole process, so that
its supervisor (systemd, Kubernetes, a person) notices and restarts it.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import structlog
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connectors.alertmanager.notifier import Notifier, NotifierMetrics
from connectors.canary.canary import Canary, CanaryMetrics
from connectors.kafka.authorized import why_not_writable
from connectors.kafka.publisher import Publisher, PublisherMetrics
from connectors.kafka.retirement import Retirement
from connectors.kafka.signing import unsigned
from connectors.kafka.ticker import Ticker
from connectors.kafka.topic_admin import TopicReport
from connectors.loop_picture import LoopPicture
from connectors.part import Check, Part
from connectors.prometheus.exporter import Exporter
from connectors.prometheus.http import MetricsServer
from connectors.status_page.site import StatusSite
from connectors.version import VERSION
from deploy.batch_log import BatchLog
from deploy.causes import cause_in_one_line
from deploy.checkpoint import Checkpoint, Plan, require_fitting, require_same_kafka
from deploy.checkpoint_move import follow_move
from deploy.class_archives import Archiving, ClassArchive
from deploy.clock_notes import ClockNotes
from deploy.jar_bar import fetched_jars
from deploy.jvm import find_java
from deploy.query_health import QueryHealth
from deploy.settings import Settings
from deploy.supervisor import QuerySupervisor
from policies.decisions import Alert, Decision
from policies.errors import UserError
from streaming.batch_clock import BatchClock
from streaming.master import is_local
from streaming.query import Wiring
from streaming.rehearsal import rehearse
from streaming.remote_checkpoint import last_plan
from streaming.session import class_path_of, is_alive, spark_jars, start_session, stop_session

_log = structlog.get_logger(__name__)

_READY_CHECK_SECONDS = 0.1
_SIGNAL_CHECK_SECONDS = 0.5
_SLOW_TICK_SECONDS = 20.0
"""Without a batch for so long one is made: it shows that the query lives."""
_UNTAKEN_SECONDS = 5.0
"""Whoever has not taken a session that is started for so long stands by."""

_disable_created_metrics: Callable[[], None] = disable_created_metrics


def _nothing() -> None:
    """By default nobody is told."""


class Sessions:
    """Starts Spark sessions; the first one ahead of its use, while Kafka starts or is asked about its topics.

    Raises:
        UserError: Java or the jars are missing and cannot be had, or the data folder cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        java = find_java()
        self._settings = settings
        self._log_file = settings.made_data_dir() / "spark.log"
        self._jars = fetched_jars("spark", settings.jars_dir, tell)
        self._archive = ClassArchive("spark", class_archives(settings), java, (*self._jars, *spark_jars()))
        self._archiving = Archiving()
        self._opened: SparkSession | None = None
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="spark-start")
        self._taken = threading.Event()
        self._first: Future[SparkSession] | None = self._starter.submit(self._start)

    def open(self) -> SparkSession:
        """The session that was started ahead, if it lives still, then new ones."""
        self._taken.set()
        first, self._first = self._first, None
        self._opened = self._start() if first is None else self._alive(first.result())
        return self._opened

    def _alive(self, session: SparkSession) -> SparkSession:
        if is_alive(session):
            return session
        stop_session(session)
        return self._start()

    def archive(self, *others: tuple[ClassArchive, str]) -> None:
        """All is ready: have archives made of what was loaded by now, and of other programs with their class paths."""
        if self._opened is None:
            return  # who stands by
        with suppress(Py4JError, OSError):  # its JVM has died, or it was stopped, meanwhile
            self._archiving.begin([*others, (self._archive, class_path_of(self._opened))])

    def start_ahead(self) -> None:
        """Start one that `open` gives at once: for who stands by."""
        if self._first is None:
            self._taken = threading.Event()
            self._first = self._starter.submit(self._start)

    def while_untaken(self, use: Callable[[SparkSession, threading.Event], None]) -> None:
        """Have this done with the session that was started ahead, where nobody takes it for a while.

        Args:
            use: given the session, and what is set when somebody takes it: then there is no more time.
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
        except (Py4JError, PySparkException, OSError) as error:  # it will do without
            _log.info("Spark was not warmed up", reason=cause_in_one_line(error))

    def close(self) -> None:
        """End the session that was started ahead, if nobody has taken it, and whatever is made beside it."""
        self._taken.set()
        self._archiving.stop()
        first, self._first = self._first, None
        if first is not None:
            stop_session(first.result())
        self._starter.shutdown()

    def _start(self) -> SparkSession:
        session = start_session(self._settings.stream, self._jars, self._log_file, self._archive.flags())
        _log.info("Spark is started")
        return session


def class_archives(settings: Settings) -> Path:
    """Where archives of classes are: what is in them is run, so in no folder that others may share."""
    return settings.made_data_dir() / "class-archives"


@contextmanager
def ahead(settings: Settings) -> Iterator[Sessions]:
    """Spark, being started already."""
    sessions = Sessions(settings)
    try:
        yield sessions
    finally:
        sessions.close()


def require_own_checkpoint(settings: Settings, report: TopicReport) -> None:
    """Refuse a checkpoint that was not made with these settings.

    Raises:
        UserError: it was made with others; what to do about it.
    """
    folder = settings.checkpoint().folder
    if folder is None:
        return  # Spark is asked, once it is there
    checkpoint = Checkpoint(folder)
    _require_fitting(settings, checkpoint.plan)
    require_same_kafka(checkpoint, report.cluster_id)


def take_checkpoint(settings: Settings, report: TopicReport) -> None:
    """Make a checkpoint ready that is this process's from now on; raises as `require_own_checkpoint` does."""
    require_own_checkpoint(settings, report)
    folder = settings.checkpoint().folder
    if folder is not None and follow_move(folder):
        _log.info("the checkpoint was moved: its paths are set to where it lies now", folder=str(folder))


def query_parts(
    settings: Settings,
    registry: CollectorRegistry,
    sessions: Sessions,
    publisher: Publisher,
    may_decide: Callable[[], bool],
) -> list[Part]:
    """The query, supervised, what tells it the time, and what ends decisions about clusters that are there no more.

    `take_checkpoint` comes first.
    """
    stall_seconds = settings.stream.stall_timeout.total_seconds()
    health = QueryHealth(registry, stall_seconds)
    ticker = Ticker(
        settings.loop_kafka(),
        settings.topics,
        publisher.publish,
        silent_seconds=health.silent_seconds,
        slow_seconds=min(_SLOW_TICK_SECONDS, stall_seconds / 3),
    )
    folder, host = settings.checkpoint().folder, settings.policy_host()
    # What a checkpoint elsewhere says of its batches is not read.
    clock = ClockNotes(folder)
    batch_log = None
    if folder is not None:
        batch_log = BatchLog(folder, settings.topics.prefix, publisher.patient, clock.ahead_ms_of)
    supervisor = QuerySupervisor(
        open_session=lambda: _opened(sessions, settings),
        wiring=lambda: replace(_wiring(settings), clock=BatchClock(health.clock_watch.ahead_ms)),
        host=host,
        settings=settings.stream,
        checkpoint=folder,
        health=health,
        tick=ticker.start,
        rearm=lambda: ticker.rearm(host.known_keys()),
        clock=clock,
        on_done=_untold if batch_log is None else batch_log.on_batch,
        may_drain=may_decide,
    )
    query = Part("query", supervisor.run, health.problem, health.not_ready)
    retirement = _retirement_parts(settings, publisher)
    # The ticker stops first: a tick would keep the query from having decided on all there is.
    logging = [] if batch_log is None else [Part("batch log", batch_log.run)]
    return [Part("ticker", ticker.run), query, *logging, *retirement]


def warm_up(settings: Settings, session: SparkSession, taken: threading.Event) -> None:
    """Rehearse the query, which is another's still; without any trace, and given up once the session is `taken`."""
    if is_local(settings.stream.master) and rehearse(
        session, _wiring(settings), settings.policy_host(), settings.stream, taken
    ):
        _log.info("Spark is warm")


def _wiring(settings: Settings) -> Wiring:
    kafka = settings.loop_kafka()
    return Wiring(kafka.for_spark(), settings.topics.prefix, settings.checkpoint().uri, signatures=kafka.signatures())


def _untold(_number: int) -> None:
    """No record says what this batch took."""


def _opened(sessions: Sessions, settings: Settings) -> SparkSession:
    session, place = sessions.open(), settings.checkpoint()
    try:
        if place.folder is None:
            _require_fitting(settings, Plan(place.uri, last_plan(session, place)))
    except UserError:
        stop_session(session)
        raise
    return session


def _require_fitting(settings: Settings, plan: Plan) -> None:
    require_fitting(plan, settings.stream.shuffle_partitions, settings.topics.prefix)


def require_usable(report: TopicReport) -> None:
    """Refuse topics whose records have the time that a producer gives them, or that have fewer shares than there are.

    Raises:
        UserError: there are such; one line for each, with the command that mends it.
    """
    if unusable := (*report.untimed, *report.unshared):
        raise UserError("\n".join(map(str, unusable)))


def _retirement_parts(settings: Settings, publisher: Publisher) -> list[Part]:
    clusters = settings.decided_on()
    if clusters is None:
        _log.warning("the settings name no cluster: readings of every name that anybody writes are decided on")
        return []
    retirement = Retirement(settings.loop_kafka(), settings.topics.prefix, clusters, publisher.publish)
    return [Part("retirement", retirement.run)]


def _unheard(decision: Decision, caught_up: bool) -> None:
    """Nobody at the terminal."""


class Exporting(NamedTuple):
    """The exporter's parts, and what is to be seen of it."""

    parts: list[Part]
    site: StatusSite


def exporting(
    settings: Settings,
    registry: CollectorRegistry,
    publisher: Publisher | None,
    on_decision: Callable[[Decision, bool], None] = _unheard,
) -> Exporting:
    """The exporter: topics to metrics and to the status page, and every decision to `on_decision` as it comes in.

    Beside it the canary, where the settings have it; nothing else here needs a publisher.
    """
    settings_hash, kafka = settings.fingerprint(), settings.loop_kafka()
    canary = None
    if settings.canary and publisher is not None:
        canary = Canary(
            settings.topics.prefix,
            publisher.publish,
            CanaryMetrics(registry),
            forbidden=lambda topic: unsigned(kafka) or why_not_writable(kafka, topic),
            ready=lambda: exporter.caught_up(),
        )
    exporter = Exporter(
        settings.loop_kafka(),
        settings.topics.prefix,
        settings.policy_settings(),
        registry,
        settings_hash=settings_hash,
        clusters=settings.watched(),
        on_decision=on_decision,
        on_records=None if canary is None else canary.take,
    )

    def picture() -> LoopPicture:
        return replace(exporter.picture(), answers=None if canary is None else canary.answers())

    site = StatusSite(picture, version=VERSION, settings_hash=settings_hash)
    parts = [Part("exporter", exporter.run, None, exporter.caught_up), Part("status page", site.run)]
    return Exporting([*parts, *([] if canary is None else [Part("canary", canary.run)])], site)


def notifier_parts(settings: Settings, registry: CollectorRegistry) -> list[Part]:
    """What sends alerts on, where the settings name somebody to send them to."""
    if settings.alertmanager is None:
        return []
    topic = f"{settings.topics.prefix}.{Alert.topic}"
    notifier = Notifier(settings.loop_kafka(), topic, settings.alertmanager, NotifierMetrics(registry))
    return [Part("alertmanager", notifier.run, None, notifier.caught_up)]


def new_registry() -> CollectorRegistry:
    """A registry with what Prometheus expects of any process."""
    _disable_created_metrics()  # a second series for each counter, which few use
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


@contextmanager
def serving(
    settings: Settings, registry: CollectorRegistry, parts: Sequence[Part], site: StatusSite | None = None
) -> Iterator[MetricsServer]:
    """Serve /metrics, /-/healthy and /-/ready for these parts, and the status page where there is one."""
    server = MetricsServer(
        registry,
        host=settings.http.host,
        port=settings.http.port,
        healthy=_checks(parts, lambda part: part.healthy),
        ready=_checks(parts, lambda part: part.ready),
        setting="http.port",
        site=None if site is None else site.answer,
        access=settings.http.access,
    )
    with server:
        yield server


def _checks(parts: Sequence[Part], of: Callable[[Part], Check | None]) -> Mapping[str, Check]:
    return {part.name: check for part in parts if (check := of(part)) is not None}


def run_parts(
    parts: Sequence[Part],
    stop: threading.Event,
    *,
    on_ready: Callable[[], None] = _nothing,
    on_stop: Callable[[], None] = _nothing,
) -> None:
    """Run until `stop` is set or a part fails, then stop all, in order, each before the next.

    Raises:
        UserError: what the part that failed raised; anything else it raised is raised as it is.
    """
    failures: list[BaseException] = []
    # Daemons: a second Ctrl-C ends the process at once, whatever a part is waiting for.
    threads = [
        threading.Thread(target=_guarded, args=(part, failures, stop), name=part.name, daemon=True) for part in parts
    ]
    for thread in threads:
        thread.start()
    _await_ready(parts, stop, on_ready)
    while not stop.wait(_SIGNAL_CHECK_SECONDS):
        pass  # Python runs signal handlers on this thread, and only while it is awake
    on_stop()
    for part, thread in zip(parts, threads, strict=True):
        part.stop.set()
        thread.join()
    if failures:
        raise failures[0]


def _await_ready(parts: Sequence[Part], stop: threading.Event, on_ready: Callable[[], None]) -> None:
    while not stop.wait(_READY_CHECK_SECONDS):
        if all(part.ready() is None for part in parts if part.ready is not None):
            on_ready()
            return


def _guarded(part: Part, failures: list[BaseException], stop: threading.Event) -> None:
    if (failure := part.run_to_end()) is not None:
        failures.append(failure)
    stop.set()


def tell(line: str) -> None:
    """Say what takes its time."""
    _log.info(line)


@contextmanager
def publishing(settings: Settings, registry: CollectorRegistry) -> Iterator[Publisher]:
    """A publisher to the loop's own Kafka, flushed at the end."""
    with Publisher(settings.loop_kafka(), PublisherMetrics(registry)) as publisher:
        yield publisher
