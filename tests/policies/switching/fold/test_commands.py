"""Commands as they come over the wire."""

from policies.observations import Observation
from policies.switching.events import to_event
from policies.switching.readings import CommandName, SwitchCommand
from policies.units import from_millis
from tests.policies.switching.wire import CLUSTER


def test_cleaning_up_is_a_dry_run_unless_said_otherwise() -> None:
    plain = SwitchCommand(cluster=CLUSTER, command=CommandName.CLEANUP, idempotency_key="k")
    for given_, expected in ((None, True), (True, True), (False, False)):
        event = to_event(Observation("o", from_millis(0), plain.model_copy(update={"dry_run": given_})))
        assert isinstance(event, SwitchCommand)
        assert event.is_dry_run is expected
    other = plain.model_copy(update={"command": CommandName.ROLLBACK})
    event = to_event(Observation("o", from_millis(0), other))
    assert isinstance(event, SwitchCommand)
    assert not event.is_dry_run
