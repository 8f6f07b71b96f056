"""Commands as operators publish them."""

from typing import Any

from policies.switching.readings import CommandArgs, CommandName, SwitchCommand

CLUSTER = "pulsar-1"


def command(
    which: str,
    key: str,
    *,
    dry_run: bool = False,
    expected_epoch: int | None = None,
    digest: str | None = None,
    **args: Any,
) -> SwitchCommand:
    """A command; an empty name or URI is left out, since no operator can send one."""
    return SwitchCommand(
        cluster=CLUSTER,
        command=CommandName(which),
        args=CommandArgs(**{k: None if v == "" else v for k, v in args.items()}),
        actor="a test",
        idempotency_key=key,
        dry_run=dry_run,
        expected_epoch=expected_epoch,
        precheck_digest=digest,
    )
