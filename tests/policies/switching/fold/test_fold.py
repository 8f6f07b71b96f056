"""What a reading says to the machine."""

from policies.observations import Observation, Outcome
from policies.switching.events import to_event
from policies.switching.readings import SwitchBrokers, SwitchCommand
from policies.switching.registration import KIND
from policies.units import from_millis
from tests.policies.switching.wire import CLUSTER


def test_what_could_not_be_read_is_no_event() -> None:
    for kind in KIND.readings:
        if kind not in (SwitchCommand, SwitchBrokers):  # brokers that cannot be read are unknown
            bare = kind.model_construct(cluster=CLUSTER, outcome=Outcome.TIMEOUT)
            assert to_event(Observation("o", from_millis(0), bare)) is None
