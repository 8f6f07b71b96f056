"""The isolation policy's commands: `headgate placement` and `headgate promise`."""

import logging
from typing import Annotated, Literal

import typer

from deploy.commands.examples import show_examples
from deploy.commands.lazy_imports import load_asked, print_sentence
from deploy.commands.options import AsJson, Reason, SettingsFile, Timeout
from policies.errors import UserError

RuleSetName = Literal["legacy", "current", "strict"]
"""The values of the isolation policy's `RuleSet`, repeated here so that `--help` need not import the policy."""

app = typer.Typer()


@app.command(epilog=show_examples("placement"))
def placement(
    cluster: Annotated[str, typer.Option(help="Name of the watched cluster.")],
    namespace: Annotated[str | None, typer.Option(help="tenant/namespace; default: all, the worst first.")] = None,
    ensemble: Annotated[int | None, typer.Option(min=1, help="Ensemble size, instead of the namespace's own.")] = None,
    rules: Annotated[RuleSetName | None, typer.Option(help="Rule set, instead of the one in the settings.")] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGE",
            help="Assume this change: add=BOOKIE, add=BOOKIE@GROUP, remove=BOOKIE or remove-group=GROUP. Repeatable.",
        ),
    ] = None,
    as_json: AsJson = False,
    settings: SettingsFile = None,
) -> None:
    """Show on which bookies a namespace may place data. Each bookie has its reason, from live data."""
    from deploy.policy_commands.placement import PlacementQuery, show_placement
    from policies.isolation.settings import RuleSet
    from policies.isolation.what_if import parse_change

    changes = tuple(parse_change(text) for text in what_if or ())
    query = PlacementQuery(cluster, namespace, ensemble, RuleSet(rules) if rules else None, changes)
    given = load_asked(settings, logging.ERROR)  # the answer contains the outcome of each reading
    show_placement(given, query, as_json=as_json)


@app.command(epilog=show_examples("promise"))
def promise(
    rules: Annotated[
        str, typer.Argument(help="strict, current or legacy; `settings` returns to the promise in the settings.")
    ],
    cluster: Annotated[str, typer.Option(help="Name of the watched cluster that has the namespace.")],
    namespace: Annotated[str, typer.Option(help="tenant/namespace.")],
    reason: Reason = "",
    timeout: Timeout = 60.0,
    settings: SettingsFile = None,
) -> None:
    """Set the isolation rules that a namespace is promised. The running loop checks its placements against them."""
    from deploy.policy_commands.promise import PromiseRequest, send_promise
    from policies.isolation.settings import RuleSet

    known = {rule.value: rule for rule in RuleSet}
    if rules not in (*known, "settings"):
        raise UserError(f"'{rules}' is no promise: write one of {', '.join(known)}, settings")
    request = PromiseRequest(cluster, namespace, known.get(rules), reason, timeout)
    placement = send_promise(load_asked(settings), request)
    print_sentence(f"promised: {placement.promise.value}. {placement.explanation}")


def require_namespace(name: str) -> None:
    """Refuse a `--namespace` that is not tenant/namespace (or, in old Pulsars, tenant/cluster/namespace).

    Raises:
        UserError: it is not.
    """
    if "/" not in name or not all(name.split("/")):
        raise UserError(f"--namespace: '{name}' is no namespace: write it as tenant/namespace")
