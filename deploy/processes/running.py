"""Runs the components of a process: starts them together, serves their metrics and health, and stops them in order.

Each component runs on its own thread until its stop event is set. The first component that fails ends the whole
process, so that its supervisor (systemd, Kubernetes, a person) notices and restarts it.
"""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import structlog
from prometheus_client import (
    CollectorRegistry,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from connectors.component import Component
from connectors.exporter.page.site import StatusSite
from connectors.http.access import require_free_port
from connectors.http.server import MetricsServer
from connectors.http.tls import Certificates, find_files
from deploy.settings.application import Settings
from policies.units import UserError

_READY_CHECK_SECONDS = 0.1
_SIGNAL_CHECK_SECONDS = 0.5

_disable_created_metrics: Callable[[], None] = disable_created_metrics


def new_registry() -> CollectorRegistry:
    """Make a metrics registry with the usual metrics of a Python process."""
    _disable_created_metrics()  # a second series for each counter that few dashboards use
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


@contextmanager
def serving(
    settings: Settings, registry: CollectorRegistry, components: Sequence[Component], site: StatusSite | None = None
) -> Iterator[MetricsServer]:
    """Serve /metrics, /-/healthy and /-/ready for these components, and the status page if there is one."""
    http = settings.http
    registry.register(Certificates(settings))
    server = partial(
        MetricsServer,
        host=http.host,
        names=http.host_names,
        healthy={each.name: each.healthy for each in components if each.healthy is not None},
        ready={each.name: each.ready for each in components if each.ready is not None},
    )
    with ExitStack() as servers:
        if http.probes_port is not None:
            servers.enter_context(server(CollectorRegistry(), port=http.probes_port, setting="http.probes_port"))
        respond = None if site is None else site.respond
        own = server(registry, port=http.port, setting="http.port", site=respond, access=http.access)
        yield servers.enter_context(own)


def require_free_ports(settings: Settings) -> None:
    """Raise UserError if a port of `serving` is in use, before Spark is started, whose end would be awaited."""
    http = settings.http
    require_free_port(http.host, http.port, "http.port")
    if http.probes_port is not None:
        require_free_port(http.host, http.probes_port, "http.probes_port")


def run_components(
    components: Sequence[Component],
    stop: threading.Event,
    *,
    on_ready: Callable[[], None] = lambda: None,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Run components until `stop` is set or one of them fails, then stop them in their order, each before the next.

    `on_ready` is called once all are ready, `on_stop` before the first is stopped. Raises the error of the component
    that failed first, or UserError if one ended by itself.
    """
    failures: list[BaseException] = []
    threads = [component.start(failures, stop) for component in components]
    _await_ready(components, stop, on_ready)
    while not stop.wait(_SIGNAL_CHECK_SECONDS):
        pass  # Python runs signal handlers on this thread, and only while it is awake
    on_stop()
    for component, thread in zip(components, threads, strict=True):
        component.stop.set()
        thread.join()
    if failures:
        raise failures[0]


def _await_ready(components: Sequence[Component], stop: threading.Event, on_ready: Callable[[], None]) -> None:
    while not stop.wait(_READY_CHECK_SECONDS):
        is_ready = all(component.ready() is None for component in components if component.ready is not None)
        if is_ready and not stop.is_set():  # a component may have ended while others were asked
            on_ready()
            return


# Stops the process in order on SIGINT and SIGTERM.


def stop_on_signals() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set; a second SIGINT interrupts the process as usual."""
    stop = threading.Event()

    def on_signal(number: int, _frame: object) -> None:
        _set_in_handler(stop)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop


def _set_in_handler(event: threading.Event) -> None:
    """Set an event from a signal handler.

    A new thread sets it, because waiting for an event or setting it holds the event's lock for a moment. A handler that
    interrupts the main thread in that moment would wait for the lock forever.
    """
    threading.Thread(target=event.set, name="signal", daemon=True).start()


# A renewal: on SIGHUP, or when a file of its connections has changed, this process executes itself again.
#
# A process reads its settings and certificates once. What would be read next is validated while the old ones work. If
# it is good, the process drains and executes itself: the query continues from its checkpoint, and a stand-by takes over
# meanwhile. If it is bad, the process goes on as it is. So a bad file is never a crash loop.

_log = structlog.get_logger(__name__)

_CHECK_SECONDS = 1.0
_LOOK_SECONDS = 3.0
_AGAIN_SECONDS = 60.0
"""Time between two looks at changed files that were refused: the cause may be a Kafka that is away."""
_READ_ONCE = re.compile(r"(?:^|\.)(?:(?:ca|cert|key|key_password)_file|sasl\.(?:password|client_secret)_file)$")
"""Settings of files that clients read when they are made. Tokens and ZooKeeper's passwords are read at each use."""


class Renewal:
    """Decides when this process replaces itself by a new one.

    `validate` raises UserError if the process could not run with some settings; `restore` restores the values that were
    set on the clusters of the settings that it gets.
    """

    def __init__(
        self,
        load: Callable[[], Settings],
        settings: Settings,
        validate: Callable[[Settings], None] = lambda _: None,
        restore: Callable[[Settings], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._load = load
        self._validate = validate
        self._restore = restore
        self._clock = clock
        self._asked = threading.Event()
        self._files = [file for _, file in find_files(settings, _READ_ONCE)]
        self._stamps = self._seen = list(map(_read_stamp, self._files))
        self._look_at = 0.0
        self._fresh: Settings | None = None
        self._is_successful = True
        signal.signal(signal.SIGHUP, lambda _number, _frame: _set_in_handler(self._asked))

    def run(self, run: Callable[["Renewal"], None]) -> bool:
        """Call `run` until it ends for another reason than a renewal; return whether the process should renew itself.

        First it restores the originals on clusters that the new settings leave out. If that fails, the process goes on
        with the settings from before, because no other process would restore them later.
        """
        while True:
            run(self)
            fresh, self._fresh = self._fresh, None
            if fresh is None or self._restore_dropped(fresh):
                return fresh is not None

    def component(self, registry: CollectorRegistry, end_run: threading.Event) -> Component:
        """Return the component that looks for changes; it sets `end_run` when the process should renew itself."""
        successful = renewal_gauge(registry)
        successful.set(self._is_successful)

        def run(stop: threading.Event) -> None:
            while not stop.is_set():
                is_asked = self._asked.wait(_CHECK_SECONDS)
                self._asked.clear()
                if (is_asked or self._have_files_changed()) and self._accept(successful):
                    end_run.set()
                    stop.wait()

        return Component("renewal", run)

    def _have_files_changed(self) -> bool:
        """Whether files differ from those at the start, and are the same at two looks, so nobody is writing them."""
        if self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + _LOOK_SECONDS
        before, self._seen = self._seen, list(map(_read_stamp, self._files))
        return self._stamps != self._seen == before

    def _accept(self, successful: Gauge) -> bool:
        try:
            fresh = self._load()
            self._validate(fresh)
        except UserError as error:
            self._refuse(str(error).splitlines(), successful)
            return False
        except Exception:  # an internal error must not end a running loop
            _log.exception("the settings cannot be read")
            self._refuse(["a fault of Headgate's"], successful)
            return False
        self._fresh, self._is_successful = fresh, True
        came, went = _compare(self.settings, fresh)
        _log.info("starting anew", clusters_added=came, clusters_dropped=went, hash=fresh.fingerprint())
        return True

    def _refuse(self, mistakes: list[str], successful: Gauge) -> None:
        self._look_at, self._is_successful = self._clock() + _AGAIN_SECONDS, False
        successful.set(0)
        _log.error("the new settings or certificates are refused, those in force stay", mistakes=mistakes)

    def _restore_dropped(self, fresh: Settings) -> bool:
        _, went = _compare(self.settings, fresh)
        gone = {name: self.settings.clusters[name] for name in went}
        try:
            if gone:
                self._restore(self.settings.model_copy(update={"clusters": gone}))
        except UserError as error:
            self._is_successful = False
            _log.error(
                "the new settings are refused: they drop clusters on which something is set that cannot be restored",
                clusters_dropped=went,
                mistakes=str(error).splitlines(),
            )
            return False
        return True


def _read_stamp(file: Path) -> tuple[int, int, int] | None:
    """Return what shows a change of a file: time, inode and size; None if it cannot be read."""
    with suppress(OSError):
        found = file.stat()
        return found.st_mtime_ns, found.st_ino, found.st_size
    return None


def _compare(before: Settings, fresh: Settings) -> tuple[list[str], list[str]]:
    """Return the names of the clusters that come, and of those that go."""
    return sorted(fresh.clusters.keys() - before.clusters.keys()), sorted(before.clusters.keys() - fresh.clusters)


def start_anew() -> NoReturn:
    """Execute this command again in this process, with its id, environment and output.

    Raises UserError if spark-submit has started it, and its JVM serves one start only.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        raise UserError("The settings or certificates have changed: start spark-submit again.")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # one more would end the process before its new handler is set
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - no shell is wanted


def renewal_gauge(registry: CollectorRegistry) -> Gauge:
    """Register the metric whether the settings and certificates in force are the ones last given."""
    return Gauge(
        "headgate_settings_last_reload_successful",
        "0 if changed settings or certificates are refused, so that older ones are in force.",
        registry=registry,
    )
