"""Reloads the settings of a running loop on SIGHUP."""

import signal
import threading
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, Gauge

from deploy.processes.signals import set_in_handler
from deploy.settings.application import Settings
from policies.errors import UserError

_log = structlog.get_logger(__name__)

_CHECK_SECONDS = 0.2


class SettingsReload:
    """Reads the settings again on SIGHUP.

    Valid ones end the run in order, and the next run starts with them. Invalid ones change nothing: the last valid ones
    stay in force, the log has the mistakes, and a metric shows the failure.

    Args:
        load: reads the settings; raises UserError.
    """

    def __init__(self, load: Callable[[], Settings]) -> None:
        self._load = load
        self._asked = threading.Event()
        self._fresh: Settings | None = None
        signal.signal(signal.SIGHUP, lambda _number, _frame: set_in_handler(self._asked))

    def watch(self, registry: CollectorRegistry, end_run: threading.Event) -> Callable[[threading.Event], None]:
        """Return a component's `run`, which reloads until its event is set, and sets `end_run` for new settings."""
        successful = reload_gauge(registry)
        successful.set(1)

        def run(stop: threading.Event) -> None:
            while not stop.is_set():
                if self._asked.wait(_CHECK_SECONDS) and self._read_again(successful):
                    end_run.set()
                    stop.wait()

        return run

    def pop_settings(self) -> Settings | None:
        """Return the new settings, once; None if the run ended for another reason."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def _read_again(self, successful: Gauge) -> bool:
        self._asked.clear()
        try:
            self._fresh = self._load()
        except UserError as error:
            successful.set(0)
            _log.error("the settings are invalid, the last valid ones stay in force", mistakes=str(error).splitlines())
            return False
        except Exception:  # an internal error must not end a running loop
            successful.set(0)
            _log.exception("the settings cannot be read, the last valid ones stay in force")
            return False
        _log.info("settings reloaded, restarting with them", hash=self._fresh.fingerprint())
        return True


def reload_gauge(registry: CollectorRegistry) -> Gauge:
    """Register the metric whether the settings in force are the ones last requested."""
    return Gauge(
        "headgate_settings_last_reload_successful",
        "0 if the settings were reloaded and are invalid, so that older ones are in force.",
        registry=registry,
    )
