"""The commands of policies: `headgate switch …`, `placement` and all others that a policy's registration names."""

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points

import typer

from policies.units import UserError

OWN = ("deploy.policy_commands.apps:app", "deploy.switch.cli:switch_app")
"""The `commands` of Headgate's own policies, repeated here so that `--help` need not import the policies."""

ENTRY_POINTS = "headgate.policies"
"""The group of `policies.registry`, repeated for the same reason."""


def command_apps() -> Iterator[typer.Typer]:
    """Yield the Typer apps of all policies: Headgate's own first, then those of installed packages.

    An app with a name becomes a group such as `headgate switch`; the commands of an app without one are added beside
    Headgate's own. Raises UserError if an installed package names something else.
    """
    for place in (*OWN, *_installed()):
        module, _, attribute = place.partition(":")
        try:
            app = getattr(import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise UserError(f"commands {place!r} cannot be loaded ({error}); they must be module:attribute") from error
        if not isinstance(app, typer.Typer):
            raise UserError(f"commands {place!r} must name a typer.Typer, and name a {type(app).__name__}")
        yield app


def _installed() -> list[str]:
    if not entry_points(group=ENTRY_POINTS):
        return []
    from connectors.registration import connectors_of
    from policies.registry import POLICIES

    places = (connectors_of(kind).commands for kind in POLICIES.values())
    return [place for place in places if place is not None and place not in OWN]
