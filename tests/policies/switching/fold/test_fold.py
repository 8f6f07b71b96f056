"""What readings do to the state."""

from policies.observations import Observation, Outcome
from policies.switching.fold import fold
from policies.switching.readings import SwitchBrokers
from policies.switching.registration import KIND
from policies.switching.state import SwitchingState
from policies.units import from_millis
from tests.policies.switching.wire import CLUSTER


def test_what_could_not_be_read_changes_nothing() -> None:
    state = SwitchingState()
    for kind in KIND.readings:
        if kind is not SwitchBrokers:  # brokers that cannot be read are unknown
            bare = kind.model_construct(cluster=CLUSTER, outcome=Outcome.TIMEOUT, inventory="i", part=0)
            assert fold(state, Observation("o", from_millis(0), bare)) == (state, None)
