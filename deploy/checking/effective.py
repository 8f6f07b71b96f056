"""Prints the settings in force as an equivalent settings file: each cluster with its overrides merged."""

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from deploy.settings.application import Settings


def effective_settings(settings: Settings) -> str:
    """Return all settings as YAML, with defaults, and with secrets masked.

    Below each policy's `clusters`, every watched cluster has its whole block. If the settings name no cluster, each
    override has its whole block instead.
    """
    return "".join(
        yaml.safe_dump({name: block}, sort_keys=False, allow_unicode=True, width=120)
        for name, block in _blocks(settings).items()
    )


def _blocks(settings: Settings) -> dict[str, Any]:
    blocks = {name: value for name, value in _dump_block(settings).items() if name != "policies"}
    blocks["policies"] = {name: _dump_policy(settings, block) for name, block in settings.policy_settings().items()}
    return blocks


def _dump_policy(settings: Settings, block: Any) -> dict[str, Any]:
    own = _dump_block(block)
    named = {name: block.for_cluster(name) for name in settings.clusters}
    others = {} if named else block.overrides()
    # Each override is a whole block: a default that it does not have becomes null.
    whole = {name: {**dict.fromkeys(own), **_dump_block(each)} for name, each in (named or others).items()}
    return {
        **own,
        "clusters": {name: {k: v for k, v in each.items() if k != "clusters"} for name, each in whole.items()},
    }


def _dump_block(block: BaseModel) -> dict[str, Any]:
    """Return a block as JSON data, without fields that are None by default."""
    written = block.model_dump(mode="json")
    return {
        name: _dump_value(getattr(block, name), written[name])
        for name, field in type(block).model_fields.items()
        if not (getattr(block, name) is None and field.default is None)
    }


def _dump_value(value: Any, written: Any) -> Any:
    if isinstance(value, BaseModel):
        return _dump_block(value)
    if isinstance(value, Mapping):
        pairs = zip(written.items(), value.values(), strict=True)  # keys may be members of an enum
        return {name: _dump_value(each, one) for (name, one), each in pairs}
    if isinstance(value, tuple | list):
        return [_dump_value(each, one) for each, one in zip(value, written, strict=True)]
    return written
