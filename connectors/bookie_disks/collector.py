"""The collector of bookies' disks: asks each registered bookie over HTTP, several at once."""

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from connectors.bookie_disks.registration import WatchedBookieDisks
from connectors.collection import Collector, PollMetrics, first_problem, one_line
from connectors.http.rest import REST_READ_ERRORS, AdminError
from connectors.pulsar.admin import BookieHttp
from connectors.pulsar.settings import PulsarAdmin
from policies.bookie_disks.readings import BookieDir, BookieDisks, BookieThresholds, normalize_path
from policies.bookie_readings import MAX_BOOKIES
from policies.observations import Outcome, Reading
from policies.units import MAX_INT64

# The HTTP admin server of one bookie (`httpServerEnabled=true`): free space, mode, configuration, and usage by dir.
#
# Recorded from a real bookie 4.17.3. `/api/v1/bookie/info` has the sums over all ledger dirs, which hide one full
# dir. The gauges of `/metrics` have the used per cent of each dir, under a name made of its path. In
# `/api/v1/config/server_config` stands only what the configuration sets, so an absent threshold is BookKeeper's
# default.

_DEFAULT_PORT = "3181"
_JAVA_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_BLANKS = "".join(map(chr, range(33)))
"""What Java's `trim` removes."""
_GAUGE = re.compile(r"^bookie_ledger_dir_([^\s{]+)_usage(?:\{[^}\n]*\})? (\S+)", re.MULTILINE)
_NO_METRIC_CHARACTER = re.compile(r"[^a-zA-Z0-9_:]")
_STATS_HINT = (
    "it has several ledger dirs and no gauge of each: set statsProviderClass="
    "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider in bookkeeper.conf"
)


class BookieSpace(BaseModel):
    """The sums over all ledger dirs of a bookie."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    free_bytes: int = Field(alias="freeSpace", ge=0, le=MAX_INT64)
    total_bytes: int = Field(alias="totalSpace", gt=0, le=MAX_INT64)


class _BookieMode(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    is_read_only: bool = Field(alias="readOnly")


Shape = TypeVar("Shape")
_SPACE, _MODE, _CONFIG = TypeAdapter(BookieSpace), TypeAdapter(_BookieMode), TypeAdapter(dict[str, str])


class BookieAdmin(BookieHttp):
    """One bookie's HTTP server. Every method raises as `RestClient.get` does."""

    def registered(self) -> dict[str, str | None]:
        """Return the registered bookies with their hosts, read-only ones included."""
        read_only, writable = (self.listed(kind, print_hostnames="true") for kind in ("ro", "rw"))
        return {**read_only, **writable}

    def read(self, path: str, shape: TypeAdapter[Shape]) -> Shape:
        """Return the answer of one of its resources."""
        return self._rest.get(f"/api/v1/{path}", shape)

    def used_shares(self) -> dict[str, float]:
        """Return the used share by the part of a gauge's name that stands for the dir; empty without such gauges."""
        try:
            text = self._rest.send("GET", "/metrics").text
        except AdminError as error:
            if error.outcome is Outcome.UNSUPPORTED:
                return {}
            raise
        try:
            return {name: float(value) / 100 for name, value in _GAUGE.findall(text)}
        except ValueError:
            raise AdminError(Outcome.ERROR, "GET /metrics: the usage of a ledger dir is no number") from None


def find_stranger(bookie: str, config: Mapping[str, str]) -> str | None:
    """Return the id of the bookie that answered in place of another one; None if the right one did, as far as known."""
    if (own := config.get("bookieId")) is None:
        host = config.get("advertisedAddress") or bookie.rpartition(":")[0]
        own = f"{host}:{config.get('bookiePort', _DEFAULT_PORT)}"
    return None if own == bookie else own


def list_ledger_dirs(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configured ledger dirs of a bookie, as Java writes paths: gauges have them so, too."""
    names = config.get("ledgerDirectories", "/tmp/bk-data").strip("[]").split(",")  # noqa: S108 - BookKeeper's default
    return tuple(dict.fromkeys(normalize_path(name.strip()) for name in names if name.strip()))


def read_thresholds(config: Mapping[str, str]) -> tuple[BookieThresholds | None, str | None]:
    """Return the used shares at which a bookie changes its behaviour, and which of them are no shares from 0 to 1.

    At `diskUsageWarnThreshold` it suspends major compaction, at `diskUsageThreshold` minor compaction, too.
    """
    shares, problems = [], []
    for name, default in (("diskUsageThreshold", "0.95"), ("diskUsageWarnThreshold", "0.90")):
        text = config.get(name, default)
        share = parse_java_number(text)
        if share is None or not 0.0 <= share <= 1.0:
            problems.append(f"{name} is {text[:20]!r}, and should be a share from 0 to 1, such as {default}")
            share = None
        shares.append(share)
    read_only, warn = shares
    thresholds = BookieThresholds(read_only=read_only, major_compaction=warn, minor_compaction=read_only)
    return None if read_only is warn is None else thresholds, one_line("; ".join(problems)) or None


def parse_java_number(text: str) -> float | None:
    """Return a decimal number as Java's `Float.valueOf` reads it, with blanks around and a suffix such as `0.95f`."""
    matched = _JAVA_NUMBER.fullmatch(text.strip(_BLANKS))
    return None if matched is None else float(matched[1])


def find_dirs(names: tuple[str, ...], space: BookieSpace, used_shares: Mapping[str, float]) -> tuple[BookieDir, ...]:
    """Return the dirs of a bookie with their bytes.

    One dir has the sums. Of several, the gauges give the used shares, and the sum of their sizes is divided equally:
    ratios are exact, bytes only where the disks are of one size.

    Raises:
        AdminError: there is no gauge of each dir.
    """
    if space.free_bytes > space.total_bytes:
        raise AdminError(Outcome.ERROR, f"{space.free_bytes} bytes are free of {space.total_bytes}")
    if len(names) == 1:
        return (BookieDir(dir=names[0], total_bytes=space.total_bytes, usable_bytes=space.free_bytes),)
    by_gauge = {_NO_METRIC_CHARACTER.sub("_", name): name for name in names}
    found = {by_gauge[gauge]: share for gauge, share in used_shares.items() if gauge in by_gauge}
    if len(found) < len(names):
        raise AdminError(Outcome.UNSUPPORTED, _STATS_HINT)
    for name, share in found.items():
        if not 0.0 <= share <= 1.0:  # true of NaN, too
            raise AdminError(Outcome.ERROR, f"GET /metrics: the usage of {name} is no share: {share:.0%}")
    size = space.total_bytes // len(names)
    free = {name: max(0, round(size * (1 - share))) for name, share in found.items()}
    return tuple(BookieDir(dir=name, total_bytes=size, usable_bytes=free[name]) for name in names)


SOURCE = "headgate/collector/bookie-http"
"""The CloudEvents `source` of this collector's readings."""

_AT_ONCE = 16
_OTHERS_ASKED = 3
_LONGEST_NAME = 255


class BookieDisksCollector(Collector):
    """Reads the disks of all registered bookies of a cluster, and publishes one reading for each, failures included.

    `publish` is called from several threads, and must not block.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedBookieDisks,
        admin: PulsarAdmin,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(cluster, settings.poll_interval, publish, metrics)
        self._settings = settings
        self._admin = admin
        self._transport = transport
        self._entry = BookieAdmin(settings.bookie_url, admin, transport)
        self._bookies: dict[str, BookieAdmin | None] = {}
        """None: no address can be made of the bookie's name."""

    def close(self) -> None:
        """Close all connections; the next poll opens new ones."""
        for client in (self._entry, *self._bookies.values()):
            if client is not None:
                client.close()

    def _poll(self) -> None:
        """Read and publish all bookies. If they cannot be listed, each known one has a failed reading."""
        try:
            registered = self._list_registered()
            if len(registered) > MAX_BOOKIES:
                raise AdminError(Outcome.ERROR, f"{len(registered)} bookies are registered, more than {MAX_BOOKIES}")
            if any(not 0 < len(name) <= _LONGEST_NAME for name in registered):
                raise AdminError(Outcome.ERROR, "a registered bookie has an empty or an endless name")
        except REST_READ_ERRORS.expected as error:
            for bookie in self._bookies or [""]:
                self._publish_reading(self._failure(bookie, error), bookie=bookie)
        else:
            self._renew_clients(registered)
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"disks {self._cluster}") as pool:
                # Each as soon as it is there, because its age counts from its publication.
                list(pool.map(lambda each: self._publish_reading(self._read(each), bookie=each), self._bookies))

    def _list_registered(self) -> dict[str, str | None]:
        """Ask at `bookie_url`; if that fails, ask a few known bookies, because each of them has the list.

        A list without the bookie that returned it is another cluster's, so it does not count.
        """
        try:
            return self._entry.registered()
        except REST_READ_ERRORS.expected:
            known = [(bookie, client) for bookie, client in self._bookies.items() if client is not None]
            for bookie, client in known[:_OTHERS_ASKED]:
                with suppress(*REST_READ_ERRORS.expected):
                    if bookie in (listed := client.registered()):
                        return listed
            raise

    def _renew_clients(self, registered: Mapping[str, str | None]) -> None:
        for gone in self._bookies.keys() - registered.keys():
            if (client := self._bookies.pop(gone)) is not None:
                client.close()
        for bookie in sorted(registered.keys() - self._bookies.keys()):
            url = self._settings.find_url(bookie, registered[bookie])
            self._bookies[bookie] = None if url is None else BookieAdmin(url, self._admin, self._transport)

    def _read(self, bookie: str) -> BookieDisks:
        client = self._bookies[bookie]
        if client is None:
            return self._failure(bookie, AdminError(Outcome.ERROR, "its host is not known: name its address in urls"))
        try:
            config = client.read("config/server_config", _CONFIG)
            if (stranger := find_stranger(bookie, config)) is not None:
                raise AdminError(Outcome.ERROR, f"bookie {stranger} answers at its address: check member_url and urls")
            names = list_ledger_dirs(config)
            shares = client.used_shares() if len(names) > 1 else {}
            thresholds, problem = read_thresholds(config)
            return BookieDisks(
                cluster=self._cluster,
                outcome=Outcome.OK,
                bookie=bookie,
                read_only=client.read("bookie/state", _MODE).is_read_only,
                dirs=find_dirs(names, client.read("bookie/info", _SPACE), shares),
                thresholds=thresholds,
                detail=problem,
            )
        except ValidationError as error:
            return self._failure(bookie, AdminError(Outcome.ERROR, first_problem(error)))
        except REST_READ_ERRORS.expected as error:
            return self._failure(bookie, error)

    def _failure(self, bookie: str, error: BaseException) -> BookieDisks:
        return BookieDisks(cluster=self._cluster, bookie=bookie, **REST_READ_ERRORS.failure(error))
