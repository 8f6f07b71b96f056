"""Reloads the settings of a running loop on SIGHUP."""

import signal
import threading
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, Gauge

from deploy.processes.signals import set_in_handler
from deploy.settings.application import Settings
from policies.units import UserError

_log = structlog.get_logger(__name__)

_CHECK_SECONDS = 0.2


class SettingsReload:
    """Reads the settings again on SIGHUP.

    Valid ones end the run in order, and the next run starts with them. If they are invalid, or if Kafka, a watched
    cluster or this machine refuses them at the start of that run, the last ones that ran stay in force, the log has the
    mistakes, and a metric shows the failure.

    Args:
        load: reads the settings; raises UserError.
        restore: restores what was set on the clusters of the settings that it is given; raises UserError.
    """

    def __init__(self, load: Callable[[], Settings], restore: Callable[[Settings], None]) -> None:
        self._load = load
        self._restore = restore
        self._asked = threading.Event()
        self._fresh: Settings | None = None
        self._proven: Settings | None = None
        """The last settings with which everything became ready."""
        self._is_successful = True
        signal.signal(signal.SIGHUP, lambda _number, _frame: set_in_handler(self._asked))

    def run_each(self, first: Settings, run: Callable[[Settings], None]) -> None:
        """Run with these settings, and again with each new ones, until a run ends for another reason.

        Args:
            run: raises UserError if the settings are refused; it calls `prove` once everything is ready.

        Raises:
            UserError: a run raised it, and its settings are not new.
        """
        settings: Settings | None = first
        while settings is not None:
            try:
                run(settings)
            except UserError as error:
                if self._proven is None or self._proven is settings:
                    raise
                self._is_successful = False
                _log.error("the new settings are refused, the last ones that ran are back", mistakes=_lines(error))
                if (settings := self._pop_fresh()) is None:
                    settings, self._proven = self._proven, None
            else:
                fresh = self._pop_fresh()
                settings = None if fresh is None else self._change(settings, fresh)

    def _change(self, before: Settings, fresh: Settings) -> Settings:
        """Restore the original values on the clusters that the new settings drop, and return the new settings.

        If it cannot be restored, the settings from before stay in force: nobody would ever take it back.
        """
        gone = {name: each for name, each in before.clusters.items() if name not in fresh.clusters}
        if gone or fresh.clusters.keys() - before.clusters.keys():
            came = sorted(fresh.clusters.keys() - before.clusters.keys())
            _log.warning("the new settings name other clusters", dropped=sorted(gone), added=came)
        try:
            if gone:
                self._restore(before.model_copy(update={"clusters": gone}))
        except UserError as error:
            self._is_successful = False
            _log.error(
                "the new settings are refused: they drop clusters on which something is set that cannot be restored",
                dropped=sorted(gone),
                mistakes=_lines(error),
            )
            return before
        return fresh

    def prove(self, settings: Settings) -> None:
        """Note that everything became ready with these settings."""
        self._proven = settings

    def watch(self, registry: CollectorRegistry, end_run: threading.Event) -> Callable[[threading.Event], None]:
        """Return a component's `run`, which reloads until its event is set, and sets `end_run` for new settings."""
        successful = reload_gauge(registry)
        successful.set(self._is_successful)

        def run(stop: threading.Event) -> None:
            while not stop.is_set():
                if self._asked.wait(_CHECK_SECONDS) and self._read_again(successful):
                    end_run.set()
                    stop.wait()

        return run

    def _pop_fresh(self) -> Settings | None:
        fresh, self._fresh = self._fresh, None
        return fresh

    def _read_again(self, successful: Gauge) -> bool:
        self._asked.clear()
        try:
            self._fresh = self._load()
        except UserError as error:
            successful.set(0)
            _log.error("the settings are invalid, the last valid ones stay in force", mistakes=_lines(error))
            return False
        except Exception:  # an internal error must not end a running loop
            successful.set(0)
            _log.exception("the settings cannot be read, the last valid ones stay in force")
            return False
        self._is_successful = True
        _log.info("settings reloaded, restarting with them", hash=self._fresh.fingerprint())
        return True


def _lines(error: UserError) -> list[str]:
    return str(error).splitlines()


def reload_gauge(registry: CollectorRegistry) -> Gauge:
    """Register the metric whether the settings in force are the ones last requested."""
    return Gauge(
        "headgate_settings_last_reload_successful",
        "0 if the settings were reloaded and are invalid or refused, so that older ones are in force.",
        registry=registry,
    )
