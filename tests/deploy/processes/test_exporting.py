"""The status page, the metric and the health endpoint of one process have one liveness."""

import pytest
from prometheus_client import CollectorRegistry

from deploy.processes.parts import exporting
from deploy.settings.application import Settings


@pytest.mark.parametrize("problem", [None, "the query failed and is being restarted: the JVM is gone"])
def test_the_metric_shows_the_problem_that_health_has(problem: str | None) -> None:
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
    exporting(settings, registry := CollectorRegistry(), healthy=lambda: problem)
    assert registry.get_sample_value("headgate_loop_alive") == (0 if problem else 1)
