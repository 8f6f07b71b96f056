"""The environment of a process that Headgate starts."""

from collections.abc import Mapping

_SETTINGS = "HEADGATE_"


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Headgate's settings, among which secrets may be; JVMs and workers need none."""
    return {name: value for name, value in environment.items() if not name.upper().startswith(_SETTINGS)}
