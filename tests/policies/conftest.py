"""How the property tests run: the same examples each time, so that a failure in CI is a failure at home."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "headgate",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", settings.get_profile("headgate"), derandomize=False, max_examples=1500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "headgate"))
