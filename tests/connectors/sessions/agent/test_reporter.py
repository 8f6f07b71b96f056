"""What a member reports, and that no report can stop it."""

import pytest
from structlog.testing import capture_logs

from connectors.sessions.agent.reporter import RecoveryReporter
from policies.observations import Reading
from policies.sessions.readings import Recovery, RecoveryAction, RecoveryResult, SessionState, ZkSession

CLUSTER, MEMBER, PATH = "payments", "b1:8080", "/namespace/t/ns/0x0_0xf"


@pytest.fixture
def sent() -> list[Reading]:
    return []


@pytest.fixture
def reporter(sent: list[Reading]) -> RecoveryReporter:
    return RecoveryReporter(CLUSTER, MEMBER, sent.append)


def test_a_new_session_is_a_reading_of_it(reporter: RecoveryReporter, sent: list[Reading]) -> None:
    reporter.report_session("0x1", 6_000)
    assert sent == [
        ZkSession(
            cluster=CLUSTER, member=MEMBER, role="broker", session="0x1", state=SessionState.CONNECTED, timeout_ms=6_000
        )
    ]


def test_what_was_done_and_what_was_not_are_readings_of_the_recovery(
    reporter: RecoveryReporter, sent: list[Reading]
) -> None:
    reporter.report_ok(RecoveryAction.RECONNECT)
    reporter.report_failure(RecoveryAction.RECONNECT, "no server gave us a session", PATH, attempt=3)
    assert [(r.result, r.attempt, r.path, r.detail) for r in sent if isinstance(r, Recovery)] == [
        (RecoveryResult.OK, 1, None, None),
        (RecoveryResult.FAILED, 3, PATH, "no server gave us a session"),
    ]


def test_a_long_detail_is_cut(reporter: RecoveryReporter, sent: list[Reading]) -> None:
    reporter.report_failure(RecoveryAction.RECONNECT, "x" * 10_000, attempt=1)
    (reading,) = sent
    assert isinstance(reading, Recovery)
    assert reading.detail == "x" * 200


def test_a_report_that_cannot_be_made_is_logged_and_nothing_else() -> None:
    def refuse(_: Reading) -> None:
        raise OSError("no broker")

    with capture_logs() as logs:
        RecoveryReporter(CLUSTER, MEMBER, refuse).report_ok(RecoveryAction.RECONNECT)
    assert [(entry["log_level"], entry["event"]) for entry in logs] == [
        ("info", "recovery"),
        ("warning", "a report failed"),
    ]


def test_without_a_loop_it_is_only_logged() -> None:
    with capture_logs() as logs:
        RecoveryReporter(CLUSTER, MEMBER, None).report_failure(RecoveryAction.RECONNECT, "none", attempt=2)
    assert [(entry["event"], entry["attempt"]) for entry in logs] == [("recovery failed", 2)]
