"""Alerts of the throttle policy, as an actuator receives them."""

from policies.decisions import Alert, AlertStatus, Mode, Severity
from policies.throttle.alert_kinds import BELOW_SOFT
from tests.connectors.actuation.virtual_clock import NOON


def soft_limit_alert(status: AlertStatus, sequence: int, log_dir: str = "/a", mode: Mode = Mode.ACTIVE) -> Alert:
    """An alert about a volume of broker 1 of payments."""
    return Alert(
        decision_id=f"{log_dir}-{sequence}",
        policy="throttle",
        cluster="payments",
        subject=f"payments/1{log_dir}",
        sequence=sequence,
        verdict=status.value,
        reason="soft_limit",
        explanation="",
        decided_at=NOON,
        mode=mode,
        settings_hash="",
        valid_until=None,
        alert_id="a",
        alert=BELOW_SOFT,
        severity=Severity.WARNING,
        status=status,
        started_at=NOON,
        ended_at=None,
        summary="",
        labels={"cluster": "payments", "broker": "1", "log_dir": log_dir},
    )
