"""The components of a process that runs the query, and the preconditions of checkpoint and topics."""

import threading
from collections.abc import Callable
from dataclasses import replace

import structlog
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from connectors.component import Component
from connectors.kafka.publisher import Publisher
from connectors.kafka.retirement import Retirement
from connectors.kafka.ticker import Ticker
from connectors.kafka.topic_admin import TopicReport, check_topics
from connectors.partitions.deciders import find_deciders
from deploy.query.batch_log import BatchLog
from deploy.query.checkpoint import Checkpoint, Plan, remedy_for, require_fitting, require_same_kafka
from deploy.query.clock import ClockNotes
from deploy.query.health import QueryHealth
from deploy.query.loop_watch import LoopWatch
from deploy.query.recovery import recover
from deploy.query.spark_sessions import SparkSessions
from deploy.query.supervisor import QuerySupervisor
from deploy.settings.application import Settings
from policies.errors import UserError
from policies.host_alerts import LOOP
from streaming.checkpoint import read_last_plan
from streaming.clocks import BatchClock
from streaming.operator import StepMark
from streaming.query import Wiring, rehearse
from streaming.session import stop_session
from streaming.settings import is_local, is_on_this_machine

_log = structlog.get_logger(__name__)

_FLUSH_SECONDS = 10.0
_SLOW_TICK_SECONDS = 20.0
"""After this time without a batch, a tick causes one, which shows that the query is alive."""


def require_own_checkpoint(settings: Settings, report: TopicReport) -> None:
    """Require that the checkpoint, if it is on this machine, was made with these settings.

    Raises:
        UserError: it was made with other settings; the message says what to do.
    """
    folder = settings.checkpoint().folder
    if folder is None:
        return  # a remote checkpoint is read through Spark, once there is a session
    checkpoint = Checkpoint(folder)
    _require_fitting(settings, checkpoint.plan)
    require_same_kafka(checkpoint, report.cluster_id)


def take_checkpoint(settings: Settings, report: TopicReport) -> None:
    """Prepare the checkpoint for use by this process, which holds the lock `sole_query`.

    Raises:
        UserError: as `require_own_checkpoint` does, or the checkpoint is damaged.
    """
    require_own_checkpoint(settings, report)
    folder = settings.checkpoint().folder
    if folder is None:
        return
    if (remedy := remedy_for(Checkpoint(folder))) is not None:
        raise UserError(remedy)


def query_components(
    settings: Settings,
    registry: CollectorRegistry,
    sessions: SparkSessions,
    publisher: Publisher,
    may_decide: Callable[[], bool],
) -> list[Component]:
    """Make the components of the query: ticker, supervised query, batch log, and retirement of unwatched clusters.

    Call `take_checkpoint` first.

    Args:
        publisher: publishes ticks, batch records and tombstones.
        may_decide: whether this process still holds the query's share; asked before it drains.

    Returns:
        The components in the order in which they are to be stopped.
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
    folder, host = settings.checkpoint().folder, settings.policy_host()
    # The batch log of a remote checkpoint is not read.
    clock = ClockNotes(folder)
    batch_log = None
    if folder is not None:
        batch_log = BatchLog(folder, settings.topics.prefix, publisher.patient, clock.ahead_ms_of)
    supervisor = QuerySupervisor(
        open_session=lambda: _open_session(sessions, settings, publisher),
        wiring=lambda: replace(_wiring(settings), clock=BatchClock(health.clock_watch.ahead_ms), steps=steps),
        host=host,
        settings=settings.stream,
        checkpoint=folder,
        health=health,
        tick=ticker.start,
        rearm=lambda: ticker.rearm(host.known_keys()),
        clock=clock,
        on_done=_ignore if batch_log is None else batch_log.on_batch,
        may_drain=may_decide,
    )
    query = Component("query", supervisor.run, health.problem, health.not_ready)
    watch = LoopWatch(
        settings.topics.prefix,
        lambda: find_deciders(settings.loop_kafka(), settings.topics),
        lambda: check_topics(settings.loop_kafka(), settings.topics),
        publisher.publish,
    )
    retirement = _retirement_components(settings, publisher)
    # The ticker stops first: each tick is one more record to decide on, so the query would never be done draining.
    logging = [] if batch_log is None else [Component("batch log", batch_log.run)]
    return [Component("ticker", ticker.run), query, *logging, Component("loop watch", watch.run), *retirement]


def warm_up(settings: Settings, session: SparkSession, taken: threading.Event) -> None:
    """Warm up a stand-by's session by a rehearsal that leaves no trace; it is given up once the session is `taken`."""
    if is_local(settings.stream.master) and rehearse(
        session, _wiring(settings), settings.policy_host(), settings.stream, taken
    ):
        _log.info("Spark is warm")


def _wiring(settings: Settings) -> Wiring:
    kafka = settings.loop_kafka()
    return Wiring(kafka.for_spark(), settings.topics.prefix, settings.checkpoint().uri)


def _ignore(_number: int) -> None:
    """Log no batch: the checkpoint is remote."""


def _open_session(sessions: SparkSessions, settings: Settings, publisher: Publisher) -> SparkSession:
    """Open a session for the query; pauses and firing alerts go on if the checkpoint is new."""
    session, place = sessions.open(), settings.checkpoint()
    try:
        if place.folder is None:
            plan = Plan(place.uri, read_last_plan(session, place))
            _require_fitting(settings, plan)
        else:
            plan = Checkpoint(place.folder).plan
        if not plan.text:
            recover(settings.loop_kafka(), settings.topics, publisher.publish, settings.policy_host().knows)
            publisher.flush(_FLUSH_SECONDS)
    except (UserError, OSError):
        stop_session(session)
        raise
    return session


def _require_fitting(settings: Settings, plan: Plan) -> None:
    require_fitting(plan, settings.stream.shuffle_partitions, settings.topics.prefix)


def require_usable(report: TopicReport) -> None:
    """Require that observed topics have append times, and that share topics have enough partitions.

    Raises:
        UserError: some do not; one line for each, with the command that fixes it.
    """
    if unusable := (*report.untimed, *report.unshared):
        raise UserError("\n".join(map(str, unusable)))


def log_differences(report: TopicReport) -> None:
    """Log each topic that differs from the settings, with the command that changes it."""
    for difference in report.differences:
        log = _log.error if difference in report.unusable else _log.warning
        log("topic differs from the settings", topic=difference.topic, difference=str(difference))


def _retirement_components(settings: Settings, publisher: Publisher) -> list[Component]:
    clusters = settings.decided_clusters()
    if clusters is None:
        _log.warning("the settings name no cluster: readings of every cluster name are decided on")
        return []
    retirement = Retirement(settings.loop_kafka(), settings.topics.prefix, clusters | {LOOP}, publisher.publish)
    return [Component("retirement", retirement.run)]
