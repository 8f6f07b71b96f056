"""Alert conditions of a switch: the holds that have lasted for longer than their bound."""

from collections.abc import Iterator, Sequence

from policies.alerts import Condition
from policies.switching.alert_kinds import ALERTS
from policies.switching.facts import SwitchFacts
from policies.switching.judge.holds import DatedHold
from policies.units import format_second, from_millis

_SEVERITIES = {alert.name: alert.severities[0] for alert in ALERTS}


def conditions(cluster: str, facts: SwitchFacts, holds: Sequence[DatedHold]) -> Iterator[Condition]:
    """Return the alert conditions that hold now; of several holds with one alert the most urgent one."""
    raised: set[tuple[str, str]] = set()
    for kind, hold, due_ms in holds:
        alert, subject = kind.alert, f"{cluster}/{hold.subject}"
        if facts.now_ms < due_ms or (alert, subject) in raised:
            continue
        raised.add((alert, subject))
        labels, switch = {"cluster": cluster, **hold.labels}, facts.state.switch
        if switch is not None and kind.is_about_switch:
            labels |= {"source": switch.source, "target": switch.target, "stage": switch.stage.value}
        about = f"the switch of {cluster} from {switch.source} to {switch.target} " if switch is not None else ""
        about = about if kind.is_about_switch else f"{cluster}: "
        since = f", since {format_second(from_millis(hold.since_ms))}" if hold.since_ms is not None else ""
        summary = f"{about}{hold.why}{since}; to end it: {hold.ends_with}"
        yield Condition(alert, subject, _SEVERITIES[alert], kind.name, summary, labels)
