"""Runs the components of a process: starts them together, serves their metrics and health, and stops them in order.

Each component runs on its own thread until its stop event is set. The first component that fails ends the whole
process, so that its supervisor (systemd, Kubernetes, a person) notices and restarts it.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from connectors.component import Component
from connectors.exporter.http import MetricsServer
from connectors.exporter.page.site import StatusSite
from connectors.http.access import require_free_port
from connectors.http.tls import Certificates
from deploy.settings.application import Settings

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
        set_in_handler(stop)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop


def set_in_handler(event: threading.Event) -> None:
    """Set an event from a signal handler.

    A new thread sets it, because waiting for an event or setting it holds the event's lock for a moment. A handler that
    interrupts the main thread in that moment would wait for the lock forever.
    """
    threading.Thread(target=event.set, name="signal", daemon=True).start()
