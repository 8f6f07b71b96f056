"""Commands as they come over the wire."""

from policies.switching.readings import CommandName, SwitchCommand
from tests.policies.switching.wire import CLUSTER


def test_cleaning_up_is_a_dry_run_unless_said_otherwise() -> None:
    plain = SwitchCommand(cluster=CLUSTER, command=CommandName.CLEANUP, idempotency_key="k")
    for given_, expected in ((None, True), (True, True), (False, False)):
        assert plain.model_copy(update={"dry_run": given_}).is_dry_run is expected
    assert not plain.model_copy(update={"command": CommandName.ROLLBACK}).is_dry_run
