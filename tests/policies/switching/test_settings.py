"""The policy's settings."""

import pytest

from policies.switching.ledgers import LedgerKind
from policies.switching.settings import DAY_MS, SwitchingSettings, SwitchLimits


def test_the_defaults_are_these() -> None:
    settings = SwitchingSettings()
    assert settings.limits == SwitchLimits(DAY_MS, 15 * DAY_MS, 16, 16, 5, 1000)
    assert settings.rules.policy.value == "dedicated"
    assert settings.rules.validity_ms == 600_000
    remap = SwitchingSettings.model_validate({"strategies": {"cursor": "remap", "schema": "same_id"}})
    assert remap.limits.remapped == {LedgerKind.CURSOR}
    with pytest.raises(ValueError, match="strategies"):
        SwitchingSettings.model_validate({"strategies": {"topic": "remap"}})
