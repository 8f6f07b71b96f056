"""A Kafka resource of Strimzi as the broker properties that Strimzi's operator makes of it.

Since Strimzi 0.42, `spec.kafka.quotas` is the only place of the quotas plugin; before, it was `spec.kafka.config`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from deploy.checking.suggestions import suggest

_QUOTAS = {
    # field of spec.kafka.quotas: the plugin's key
    "producerByteRate": "produce",
    "consumerByteRate": "fetch",
    "minAvailableBytesPerVolume": "storage.per.volume.limit.min.available.bytes",
    "minAvailableRatioPerVolume": "storage.per.volume.limit.min.available.ratio",
    "excludedPrincipals": "excluded.principal.name.list",
}


def find_kafka_resource(text: str) -> Mapping[str, Any] | None:
    """Return `spec.kafka` of the first Kafka resource of a YAML or JSON text; None if it has none."""
    try:
        found = next(_list_resources(list(yaml.safe_load_all(text))), None)
    except yaml.YAMLError:
        return None
    spec = found.get("spec") if found is not None else None
    kafka = spec.get("kafka") if isinstance(spec, dict) else None
    return (kafka if isinstance(kafka, dict) else {}) if found is not None else None


def read_kafka_resource(kafka: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Return the broker properties of a resource's `spec.kafka`.

    Args:
        prefix: of the plugin's keys.

    Raises:
        ValueError: its quotas are not the plugin's, or have an unknown field.
    """
    config, quotas = kafka.get("config") or {}, kafka.get("quotas") or {}
    properties = {str(key): _write(value) for key, value in config.items()} if isinstance(config, dict) else {}
    if not isinstance(quotas, dict) or not quotas:
        return properties
    if quotas.get("type") != "strimzi":
        raise ValueError(
            f"spec.kafka.quotas.type: {quotas.get('type')} is not the plugin, which is `strimzi`; Kafka's own default "
            "quotas limit no disk, so there is nothing to import"
        )
    for field, value in quotas.items():
        if field in _QUOTAS:
            properties[prefix + _QUOTAS[field]] = _write(value)
        elif field != "type":
            raise ValueError(f"spec.kafka.quotas.{field}: no field of the plugin{suggest(str(field), _QUOTAS)}")
    return properties


def _list_resources(documents: Any) -> Iterator[dict[str, Any]]:
    """Yield the Kafka resources, those within a `List` included."""
    for document in documents if isinstance(documents, list) else ():
        if isinstance(document, dict) and document.get("kind") == "Kafka":
            yield document
        elif isinstance(document, dict) and "kind" in document:
            yield from _list_resources(document.get("items"))


def _write(value: Any) -> str:
    return ";".join(map(str, value)) if isinstance(value, list) else str(value)
