"""Reads and changes which log dirs of a cluster's brokers are cordoned (KIP-1066, Kafka 4.3).

A record of each cordon is kept on the cluster: a quota of a client id that no client has, as for original quotas::

    client-id 'headgate.cordon:3:%2Fdata%2Fa' are consumer_byte_rate=1.0
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

from connectors.kafka.log_dirs import log_dirs_reading
from connectors.kafka.outcomes import error_in
from connectors.kafka.quotas import QuotaClient
from policies.throttle.state import VolumeKey

CORDONED_KEY = "cordoned.log.dirs"
_PREFIX = "headgate.cordon:"
_RECORD_KEY = "consumer_byte_rate"
_BROKER = 4  # the type of a configuration resource
_APPEND, _SUBTRACT = 2, 3  # operations on a list
_OF_ONE_BROKER, _DEFAULT = 1, 5  # sources of a configuration


class CordonClient(QuotaClient):
    """A client that also reads and changes cordons. All methods raise KafkaError without a usable answer."""

    def read_cordons(self, cluster: str) -> dict[VolumeKey, bool]:
        """Return whether each volume is cordoned; volumes that cannot be read are missing."""
        found: dict[VolumeKey, bool] = {}
        for broker, answer in self.log_dirs(self.describe()):
            volumes = log_dirs_reading(cluster, broker, answer).volumes
            found |= {(broker, volume.log_dir): volume.cordoned for volume in volumes if volume.error is None}
        return found

    def read_records(self) -> set[VolumeKey]:
        """Return the volumes that Headgate has cordoned."""
        request = DescribeClientQuotasRequest(components=[], strict=False)
        return set(_parse_records(self._ask_one(self._candidates()[0], request)))

    def find_obstacle(self, broker: int) -> str | None:
        """Return why a log dir of a broker must not be cordoned; None if nothing is in the way."""
        request = DescribeConfigsRequest(resources=[(_BROKER, str(broker), [CORDONED_KEY])])
        (result,) = self._ask_one(broker, request).results
        if (error := error_in(result)) is not None:
            raise error
        config = next((each for each in result.configs if each.name == CORDONED_KEY), None)
        if config is None:
            return "the broker is older than Kafka 4.3, which has no cordons"
        if config.value and config.config_source not in (_OF_ONE_BROKER, _DEFAULT):
            return f"{CORDONED_KEY} is set in the broker's properties, and a value of Headgate's would replace it"
        return None

    def record(self, volume: VolumeKey, *, is_held: bool) -> None:
        """Write the record of a cordon, or remove it."""
        broker, log_dir = volume
        entity = [("client-id", f"{_PREFIX}{broker}:{quote(log_dir, safe='')}")]
        entries = [(entity, [(_RECORD_KEY, 1.0, not is_held)])]
        request = AlterClientQuotasRequest(entries=entries, validate_only=False)
        self._raise_error(self._ask_one(self._candidates()[0], request).entries)

    def cordon(self, volume: VolumeKey, *, is_cordoned: bool) -> None:
        """Add a log dir to its broker's cordoned ones, or remove it; the others stay."""
        broker, log_dir = volume
        operation = _APPEND if is_cordoned else _SUBTRACT
        resources = [(_BROKER, str(broker), [(CORDONED_KEY, operation, log_dir)])]
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
        self._raise_error(self._ask_one(broker, request).responses)

    def _raise_error(self, results: Any) -> None:
        for result in results:
            if (error := error_in(result)) is not None:
                raise error


def _parse_records(response: Any) -> Iterator[VolumeKey]:
    for entry in response.entries or ():
        names = {part.entity_type: part.entity_name for part in entry.entity}
        name = names.get("client-id") or ""
        broker, _, log_dir = name.removeprefix(_PREFIX).partition(":")
        if name.startswith(_PREFIX) and broker.isdecimal() and log_dir:
            yield int(broker), unquote(log_dir)
