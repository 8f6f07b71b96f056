"""The components of a process that runs the query, and the preconditions of checkpoint and topics."""

import shlex
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import structlog
from confluent_kafka import KafkaException
from prometheus_client import CollectorRegistry
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connectors.component import Component
from connectors.decided import DecisionsInForce, retire_clusters
from connectors.kafka.admin import TopicReport, check_topics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher
from connectors.kafka.tail import Record, Tail, read_past
from connectors.kafka.ticker import Ticker
from connectors.kafka.topics import TopicSettings
from connectors.membership import Decider, describe_loops, find_deciders
from deploy.java.jars import ensure_jars
from deploy.java.jvm import find_java
from deploy.query.checkpoint import Checkpoint, require_fitting, require_same_kafka
from deploy.query.supervisor import QueryHealth, QuerySupervisor, cause_in_one_line
from deploy.settings.application import Settings
from policies.alerts import AlertBook, Condition, Sender, review
from policies.decisions import Alert, AlertStatus, Issuer, Mode, Standing
from policies.pauses import PauseCommand
from policies.policy import HOST_ALERTS, LOOP, TOPIC_UNUSABLE, TWO_LOOPS_DECIDE
from policies.recovery import OpenAlerts
from policies.registry import AUDIT, COMMANDS, POLICIES
from policies.units import UserError, counted
from policies.wire import BadRecordError, EventReader, audit_event, decision_event, observation_event
from streaming.conf import PYTHON, launch_properties
from streaming.operator import StepMark
from streaming.query import Query
from streaming.session import is_alive, require_startable, start_session, stop_session
from streaming.settings import is_local, is_on_this_machine

# Raises the alerts about the loop itself: another loop on the same prefix, and topics that are missing or wrong.
#
# The process that decides looks for both while it runs.

_LOOK_SECONDS = 15.0
_SENDER = Sender(
    Issuer("loop", LOOP, Mode.ACTIVE, ""),
    # Kafka lists a killed process for some seconds, so the next look confirms the first one.
    grace=timedelta(seconds=_LOOK_SECONDS),
    repeat=timedelta(minutes=5),
)

_log = structlog.get_logger(__name__)


@dataclass
class LoopWatch:
    """Looks for other loops, and compares the topics with their plan."""

    settings: Settings
    publish: Callable[[str, str, bytes], None]
    _book: AlertBook = field(default_factory=AlertBook, init=False)

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set."""
        kafka, topics = self.settings.loop_kafka(), self.settings.topics
        while not stop.wait(_LOOK_SECONDS):
            try:
                self.look(find_deciders(kafka, topics), check_topics(kafka, topics), datetime.now(UTC))
            except (KafkaException, TimeoutError, UserError) as error:
                _log.debug("the loop's group or topics cannot be read", detail=str(error))

    def look(self, deciders: Sequence[Decider], topics: TopicReport, now: datetime) -> None:
        """Publish each alert that begins, is due to be repeated, or ends."""
        unusable, found, prefix = HOST_ALERTS[TOPIC_UNUSABLE], list[Condition](), self.settings.topics.prefix
        if (loops := describe_loops(deciders, prefix)) is not None:
            labels = {"hosts": ",".join(sorted({each.host for each in deciders}))}
            severity = HOST_ALERTS[TWO_LOOPS_DECIDE]
            found.append(Condition(TWO_LOOPS_DECIDE, prefix, severity, "other-checkpoint", loops, labels))
        for topic in topics.missing:
            summary = f"{topic} is missing: create it with `headgate topics create`"
            found.append(Condition(TOPIC_UNUSABLE, topic, unusable, "missing", summary, {"topic": topic}))
        for wrong in topics.unusable:
            labels = {"topic": wrong.topic}
            found.append(Condition(TOPIC_UNUSABLE, wrong.topic, unusable, wrong.key, str(wrong), labels))
        self._book, alerts, _ = review(self._book, found, now, _SENDER)
        for alert in alerts:
            log = _log.error if alert.status is AlertStatus.FIRING else _log.info
            log(alert.summary, alert=alert.alert)
            self.publish(f"{prefix}.{Alert.topic}", alert.record_key(), decision_event(alert))
            self.publish(f"{prefix}.{AUDIT}", alert.cluster, audit_event(alert))


# Starts Spark sessions, the first one ahead of its use.

_UNTAKEN_SECONDS = 5.0
"""A process that has not used its session for this time after its start is a stand-by."""


class SparkSessions:
    """Starts Spark sessions; the first one ahead of its use, while Kafka starts or topics are checked."""

    def __init__(self, settings: Settings) -> None:
        """Begin with the first one; raise UserError if none can start here, before a server is started."""
        require_startable(settings.stream)
        find_java()
        self._settings = settings
        self._log_file = settings.create_data_dir() / "spark.log"
        self._jars = ensure_jars("spark", settings.jars_dir)
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

    def stand_by(self) -> None:
        """Have a session ready that `open` will return; warm it up by a rehearsal if `open` is not called soon."""
        if self._first is None:
            self._taken = threading.Event()
            self._first = self._starter.submit(self._start)
        self._starter.submit(self._warm_up, self._first, self._taken)

    def _warm_up(self, started: Future[SparkSession], taken: threading.Event) -> None:
        """Rehearse, which leaves no trace, and is given up once the session is `taken`."""
        settings, session = self._settings, started.result()
        if taken.wait(_UNTAKEN_SECONDS) or not is_local(settings.stream.master):
            return
        try:
            if _make_query(settings).rehearse(session, taken):
                _log.info("Spark is warm")
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


_FLUSH_SECONDS = 10.0
_SLOW_TICK_SECONDS = 20.0
"""After this time without a batch, a tick causes one, which shows that the query is alive."""


def require_own_checkpoint(settings: Settings, report: TopicReport) -> Checkpoint | None:
    """Require that the checkpoint was made with these settings; return it. None: it is not on this machine."""
    checkpoint = Checkpoint(settings.checkpoint())
    if (folder := checkpoint.place.folder) is None:
        return None  # a remote checkpoint is read through Spark, once there is a session
    require_fitting(checkpoint, settings)
    require_same_kafka(folder, report.cluster_id, is_new=not checkpoint.exists)
    return checkpoint


def query_components(
    settings: Settings,
    registry: CollectorRegistry,
    sessions: SparkSessions,
    publisher: Publisher,
    may_decide: Callable[[], bool],
) -> list[Component]:
    """Make the components of the query, in the order in which they are to be stopped.

    The checkpoint must fit and be whole, and this process must hold the lock `sole_query`. The publisher publishes
    ticks and tombstones. `may_decide`, asked before a drain, tells whether this process still holds the query's share.
    """
    stall_seconds = settings.stream.stall_timeout.total_seconds()
    is_near = is_on_this_machine(settings.stream.master)
    steps = StepMark(settings.data_dir / "last-step") if is_near else None
    health = QueryHealth(registry, stall_seconds, steps=steps)
    ticker = Ticker(
        settings.loop_kafka(),
        settings.topics,
        publisher.publish,
        silent_seconds=health.silent_seconds,
        slow_seconds=min(_SLOW_TICK_SECONDS, stall_seconds / 3),
    )
    supervisor = QuerySupervisor(
        open_session=lambda: _open_session(sessions, settings, publisher),
        query=_make_query(settings, steps),
        health=health,
        tick=ticker.start,
        may_drain=may_decide,
    )
    query = Component("query", supervisor.run, health.problem, health.not_ready)
    watch = LoopWatch(settings, publisher.publish)
    # The ticker stops first: each tick is one more record to decide on, so the query would never be done draining.
    components = [Component("ticker", ticker.run), query, Component("loop watch", watch.run)]
    if (clusters := settings.watched_clusters()) is None:
        _log.warning("the settings name no cluster: readings of every cluster name are decided on")
    else:
        own = clusters | {LOOP}
        told = (settings.loop_kafka(), settings.topics.prefix, own, publisher.publish)
        components.append(Component("retirement", partial(retire_clusters, *told)))
    return components


def _make_query(settings: Settings, steps: StepMark | None = None) -> Query:
    own = {name: value.get_secret_value() for name, value in settings.stream.kafka.items()}
    kafka = {**settings.loop_kafka().for_spark(), **own}
    place, host = settings.checkpoint(), settings.policy_host()
    return Query(kafka, settings.topics.prefix, place, host, settings.stream, steps)


def _open_session(sessions: SparkSessions, settings: Settings, publisher: Publisher) -> SparkSession:
    """Open a session for the query; pauses and firing alerts go on if the checkpoint is new."""
    session, place = sessions.open(), settings.checkpoint()
    checkpoint = Checkpoint(place, session if place.folder is None else None)
    try:
        if checkpoint.session is not None:
            require_fitting(checkpoint, settings)
            checkpoint.require_whole()
        if not checkpoint.plan:
            recover(settings.loop_kafka(), settings.topics, publisher.publish, settings.policy_host().knows)
            publisher.flush(_FLUSH_SECONDS)
    except (UserError, OSError):
        stop_session(session)
        raise
    return session


# Gives a query without a checkpoint the pauses in force and the firing alerts back.
#
# It reads the query's own compacted topics, and publishes what it finds as commands, before the query reads anything.
#
# The commands are kept for a day, but a pause may last 30. The heartbeats name the pause in force. Where a command is
# still in its topic, the query reads it and the last one counts: all that are not kept are older. A comparison of its
# time with the heartbeat's would depend on two clocks, and could undo `headgate resume`.
#
# An alert that fires would go on firing until its `valid_until`, hours later, although its cause has ended. So each key
# learns which of its alerts fire: it goes on with those that its readings confirm, and resolves the others.

_RECOVERY_SECONDS = 30.0


def recover(
    connection: KafkaConnection,
    topics: TopicSettings,
    publish: Callable[[str, str, bytes], None],
    knows: Callable[[str], bool],
) -> None:
    """Publish the pauses in force, and the firing alerts of watched clusters, as commands.

    Raises TimeoutError if the topics cannot be read; without them decisions could act again.
    """
    standing, alerts, commands = map(topics.topic, (Standing.topic, Alert.topic, COMMANDS))
    with Tail(connection, dict.fromkeys((standing, alerts, commands)), f"{topics.prefix}-recovery") as tail:
        try:
            records = list(read_past(tail, patience_seconds=_RECOVERY_SECONDS))
        except UserError as error:
            raise TimeoutError(f"the pauses in force and the firing alerts cannot be read: {error}") from None
    decided = [each for each in records if each.topic != commands]
    given = [each for each in records if each.topic == commands]
    pauses = find_pauses([each for each in decided if each.topic == standing], given, datetime.now(UTC))
    fired = find_open_alerts([each for each in decided if each.topic == alerts], given, knows)
    found: tuple[PauseCommand | OpenAlerts, ...] = (*pauses, *fired)
    for command in found:
        what = "a pause goes" if isinstance(command, PauseCommand) else f"{counted(len(command.alerts), 'alert')} go"
        _log.info(f"{what} on without the checkpoint", policy=command.policy, cluster=command.cluster)
        event = observation_event(command, id=str(uuid.uuid4()), source="headgate/query", time=datetime.now(UTC))
        publish(commands, command.cluster, event)


def find_open_alerts(
    alerts: Sequence[Record], commands: Sequence[Record], knows: Callable[[str], bool]
) -> Iterator[OpenAlerts]:
    """Yield the firing alerts of each policy and cluster; an empty list if only an earlier command names some."""
    in_force = DecisionsInForce(knows)
    in_force.fold_records(alerts)
    firing: dict[tuple[str, str], list[Alert]] = {subject: [] for subject in _read_subjects(commands, OpenAlerts)}
    for alert in in_force.alerts():
        if alert.policy in POLICIES:
            firing.setdefault((alert.policy, alert.cluster), []).append(alert)
    yield from (OpenAlerts.build(policy, cluster, of_key) for (policy, cluster), of_key in sorted(firing.items()))


def find_pauses(heartbeats: Sequence[Record], commands: Sequence[Record], now: datetime) -> Iterator[PauseCommand]:
    """Yield the pause of each heartbeat that names one, unless a command for its policy and cluster is kept."""
    in_force, commanded = DecisionsInForce(), set(_read_subjects(commands, PauseCommand))
    in_force.fold_records(heartbeats)
    for said in in_force.heartbeats():
        is_paused = said.paused_by is not None and said.quiet_until is not None and said.quiet_until > now
        is_known = said.policy in POLICIES and said.cluster
        if is_known and is_paused and (said.policy, said.cluster) not in commanded:
            yield PauseCommand(
                cluster=said.cluster,
                policy=said.policy,
                until=said.quiet_until,
                actor=said.paused_by or "",
                reason=said.pause_reason or "",
                keep=said.pause_keeps is not False,
            )


def _read_subjects(
    commands: Sequence[Record], kind: type[PauseCommand] | type[OpenAlerts]
) -> Iterator[tuple[str, str]]:
    """Yield policy and cluster of each command of this kind."""
    reader: EventReader[PauseCommand | OpenAlerts] = EventReader((kind,))
    for record in commands:
        with suppress(BadRecordError):
            command = reader.read(record.value or b"").data
            yield command.policy, command.cluster


# The spark-submit command line that runs the query.

_PROGRAM = Path(__file__).parents[1] / "submit" / "headgate_submit.py"


def submit_line(settings: Settings, file: Path | None) -> str:
    """Return a command for a shell, one option a line; the driver reads the settings file again, so one is needed."""
    if file is None:
        raise UserError("--print-submit needs --settings, because the driver reads the file again")
    jars = ensure_jars("spark", settings.jars_dir, lambda _line: None)  # print only the command
    options = launch_properties(settings.stream, jars, settings.create_data_dir() / "spark.log")
    # The driver uses this Python, which has Headgate; `spark.pyspark.python` names the executors' Python.
    options = {"spark.jars": ",".join(map(str, jars)), "spark.pyspark.driver.python": sys.executable, **options}
    options.setdefault(PYTHON, sys.executable)
    properties = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in sorted(options.items())]
    program = shlex.join([str(_PROGRAM), "decide", "--settings", str(file.absolute())])
    return " \\\n  ".join(["spark-submit", *properties, program])
