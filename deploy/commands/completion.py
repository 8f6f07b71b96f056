"""Completes names in a shell: the clusters of the settings, and the policies. A mistake completes nothing."""

import os
from pathlib import Path
from typing import Any

import typer

from policies.errors import UserError

SETTINGS_VARIABLE = "HEADGATE_SETTINGS"
"""Names the settings file, in place of `--settings`."""


def complete_clusters(context: typer.Context, incomplete: str) -> list[str]:
    """Return the clusters of the settings that begin so."""
    file = context.params.get("settings") or os.environ.get(SETTINGS_VARIABLE)
    return [name for name in _read_clusters(file) if name.startswith(incomplete)]


def complete_policies(incomplete: str) -> list[str]:
    """Return the policies that begin so."""
    from policies.registry import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]


def _read_clusters(file: Any) -> list[str]:
    import yaml

    from connectors.named_files import read_named_file

    try:
        content = yaml.safe_load(read_named_file(Path(file), "a settings file")) if file else {}
        return sorted(map(str, content.get("clusters", {})))
    except (OSError, UserError, ValueError, AttributeError, TypeError, yaml.YAMLError):
        return []
