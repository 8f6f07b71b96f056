"""The status page and the health endpoint of one process have one liveness."""

import pytest
from prometheus_client import CollectorRegistry

from connectors.exporter.exporter import Exporter
from connectors.views import LoopSnapshot
from deploy.processes.parts import exporting
from deploy.settings.application import Settings
from policies.units import from_millis


@pytest.mark.parametrize("problem", [None, "the query failed and is being restarted: the JVM is gone"])
def test_the_page_shows_the_problem_that_health_has(monkeypatch: pytest.MonkeyPatch, problem: str | None) -> None:
    monkeypatch.setattr(Exporter, "snapshot", lambda _: LoopSnapshot(from_millis(0), behind=None))
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
    site = exporting(settings, CollectorRegistry(), None, healthy=lambda: problem).site
    page = site.respond("/api/v1/status")
    assert page is not None
    assert (problem is not None) == (b"the JVM is gone" in page.body)
