"""What a person can do about each finding."""

import re

from policies.switching.precheck.findings import FindingReason, PrecheckFinding, find_remedy
from policies.switching.settings import SwitchingSettings
from tests.cases import for_each


@for_each("reason", FindingReason)
def test_every_reason_says_what_to_do(reason: FindingReason) -> None:
    assert find_remedy(PrecheckFinding(reason, "found")).endswith(".")


def test_a_remedy_names_settings_that_there_are() -> None:
    text = " ".join(find_remedy(PrecheckFinding(reason, "found")) for reason in FindingReason)
    named = re.findall(r"policies\.switching\.(\w+)", text)
    assert set(named) == {"target_policy", "strategies"}
    assert set(named) <= SwitchingSettings.model_fields.keys()
    # No other way of naming them is left: where they were once, they are a mistake.
    assert len(named) == len(re.findall(r"target_policy|strategies", text))
