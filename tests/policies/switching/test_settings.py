"""The policy's settings."""

from datetime import timedelta

import pytest

from policies.switching.ledgers import LedgerKind
from policies.switching.settings import SwitchingSettings


def test_the_defaults_are_these() -> None:
    settings = SwitchingSettings()
    assert (settings.rollback_window, settings.cleanup_after) == (timedelta(days=1), timedelta(days=15))
    assert (settings.copy_concurrency, settings.max_deletions, settings.retries, settings.window) == (16, 16, 5, 1016)
    assert (settings.target_policy.value, settings.precheck_validity) == ("dedicated", timedelta(minutes=10))
    remap = SwitchingSettings.model_validate({"strategies": {"cursor": "remap", "schema": "same_id"}})
    assert remap.remapped == {LedgerKind.CURSOR}
    with pytest.raises(ValueError, match="strategies"):
        SwitchingSettings.model_validate({"strategies": {"topic": "remap"}})
