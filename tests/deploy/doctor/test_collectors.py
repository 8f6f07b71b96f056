"""Collectors run once by the doctor: what each says of a whole round of readings, however they come."""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from connectors.collection import ProbeResult
from connectors.component import Component
from connectors.policy_io import CollectorContext, ProbeContext
from connectors.registration import ClusterSources, PolicyConnectors
from deploy.doctor import _collector_probes
from deploy.processes.parts import Connections
from deploy.settings.application import Settings
from policies.observations import Outcome, Reading
from policies.throttle.readings import KafkaCluster, LogDirs

OK, TIMEOUT, UNAUTHORIZED = Outcome.OK, Outcome.TIMEOUT, Outcome.UNAUTHORIZED


def log_dirs(broker: int, outcome: Outcome) -> LogDirs:
    if outcome is OK:
        return LogDirs(cluster="c", broker=broker, outcome=outcome, volumes=())
    return LogDirs(cluster="c", broker=broker, outcome=outcome, detail="why")


Run = Callable[[CollectorContext, threading.Event], None]


def polling(readings: list[Reading], after_seconds: float = 0.0, every_seconds: float = 60.0) -> Run:
    """A collector whose every poll publishes these, the last of them after a while."""

    def run(context: CollectorContext, stop: threading.Event) -> None:
        sink = context.sink(LogDirs, "test")

        def poll() -> None:
            for reading in readings[:-1]:
                sink(reading)
            stop.wait(after_seconds)
            sink(readings[-1])

        while not stop.is_set():
            context.metrics.run_poll(context.name, poll)
            stop.wait(every_seconds)

    return run


def asked(*runs: Run) -> list[ProbeResult]:
    def collectors(context: CollectorContext) -> Iterator[Component]:
        for run in runs:
            yield Component(f"collector of {context.name}", partial(run, context))

    def remedies(_cluster: ClusterSources, reading: Reading) -> Iterator[str]:
        if reading.outcome is UNAUTHORIZED:
            yield "let it in"

    registered = PolicyConnectors(collectors=collectors, remedies=remedies)
    with Connections(Settings()) as connections:
        context = ProbeContext("c", ClusterSources(), None, connections)
        return [probe.ask() for probe in _collector_probes("throttle", registered, context)]


def test_the_reading_that_comes_last_counts_too() -> None:
    first = KafkaCluster(cluster="c", outcome=OK, brokers=())
    (answer,) = asked(polling([first, log_dirs(1, OK), log_dirs(2, UNAUTHORIZED)], after_seconds=1.0))
    assert (answer.outcome, answer.detail, answer.remedies) == (UNAUTHORIZED, "c/2: why", ("let it in",))


def test_of_several_failures_what_says_most_is_told_and_the_others_are_counted() -> None:
    (answer,) = asked(polling([log_dirs(1, TIMEOUT), log_dirs(2, UNAUTHORIZED), log_dirs(3, UNAUTHORIZED)]))
    assert (answer.outcome, answer.detail) == (UNAUTHORIZED, "c/2: why (and 2 more)")
    assert answer.remedies == (
        "let it in",
        "clusters.c: check its addresses, that the servers run, and that this machine can reach them",
    )


def test_what_was_read_is_told_by_kind() -> None:
    (answer,) = asked(polling([KafkaCluster(cluster="c", outcome=OK, brokers=()), log_dirs(1, OK), log_dirs(2, OK)]))
    assert (answer.outcome, answer.detail) == (OK, "kafka-cluster, log-dirs 2")


def test_a_collector_that_never_rests_is_heard_all_the_same() -> None:
    (answer,) = asked(polling([log_dirs(1, OK)], every_seconds=0.01))
    assert (answer.outcome, answer.detail) == (OK, "log-dirs")


def test_each_part_answers_for_itself() -> None:
    answers = asked(polling([log_dirs(1, OK)]), polling([log_dirs(2, TIMEOUT)]))
    assert [answer.outcome for answer in answers] == [OK, TIMEOUT]


def _wait(_context: CollectorContext, stop: threading.Event) -> None:
    stop.wait(60)


def test_a_collector_that_reads_nothing_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.doctor.LIMIT_SECONDS", 4.2)
    (answer,) = asked(_wait)
    assert (answer.outcome, answer.detail) == (TIMEOUT, "it has published no reading in time")
