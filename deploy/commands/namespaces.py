"""Validates a Pulsar namespace given as an option."""

from policies.errors import UserError


def require_namespace(name: str) -> None:
    """Refuse what cannot be one (of old, also `tenant/cluster/namespace`).

    Raises:
        UserError: it is none.
    """
    if not all(("/" in name, *name.split("/"))):
        raise UserError(f"--namespace: '{name}' is none: write it as tenant/namespace")
