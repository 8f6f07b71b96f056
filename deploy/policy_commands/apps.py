"""The commands of policies: those that are no group, and the Typer apps of all policies by their registrations."""

import logging
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Literal

import typer

from deploy.console.options import AsJson, Reason, SettingsFile, Timeout, load_asked, print_sentence, show_examples
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


# The bookie-disks policy's command: `headgate disks`.

app = typer.Typer()


@app.command(epilog=show_examples("headgate disks --cluster messaging"))
def disks(
    cluster: Annotated[str, typer.Option(help="Name of the watched cluster.")],
    as_json: AsJson = False,
    settings: SettingsFile = None,
) -> None:
    """Show the bookies of each placement group. It has the fullest dir and the factor of each, from live data."""
    from deploy.policy_commands.bookies import show_disks

    given = load_asked(settings, logging.ERROR)  # the answer contains the outcome of each reading
    show_disks(given, cluster, as_json=as_json)


# The isolation policy's commands: `headgate placement` and `headgate promise`.

RuleSetName = Literal["legacy", "current", "strict"]
"""The values of the isolation policy's `RuleSet`, repeated here so that `--help` need not import the policy."""


def _require_namespace(name: str) -> None:
    """Raise UserError if a `--namespace` is not tenant/namespace (or, in old Pulsars, tenant/cluster/namespace)."""
    if "/" not in name or not all(name.split("/")):
        raise UserError(f"--namespace: '{name}' is no namespace: write it as tenant/namespace")


@app.command(
    epilog=show_examples(
        "headgate placement --cluster messaging",
        "headgate placement --cluster messaging --namespace acme/orders --what-if remove=bookie-3:3181",
    )
)
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
    from deploy.policy_commands.bookies import show_placement
    from policies.isolation.placement import parse_change
    from policies.isolation.settings import RuleSet

    if namespace is not None:
        _require_namespace(namespace)
    changes = tuple(parse_change(text) for text in what_if or ())
    given = load_asked(settings, logging.ERROR)  # the answer contains the outcome of each reading
    rule_set = RuleSet(rules) if rules else None
    show_placement(given, cluster, namespace, ensemble, rule_set, changes, as_json=as_json)


@app.command(epilog=show_examples("headgate promise strict --cluster messaging --namespace acme/orders"))
def promise(
    rules: Annotated[
        Literal["legacy", "current", "strict", "settings"],
        typer.Argument(help="The promised rules; `settings` returns to the promise in the settings."),
    ],
    cluster: Annotated[str, typer.Option(help="Name of the watched cluster that has the namespace.")],
    namespace: Annotated[str, typer.Option(help="tenant/namespace.")],
    reason: Reason = "",
    timeout: Timeout = 60.0,
    settings: SettingsFile = None,
) -> None:
    """Set the isolation rules that a namespace is promised. The running loop checks its placements against them."""
    from deploy.inspection.requests import send_promise
    from policies.isolation.settings import RuleSet

    _require_namespace(namespace)
    promised = None if rules == "settings" else RuleSet(rules)
    placement = send_promise(load_asked(settings), cluster, namespace, promised, reason, timeout)
    print_sentence(f"promised: {placement.promise.value}. {placement.explanation}")


# The throttle policy's commands: `headgate import-strimzi`, `forget` and `adopt`.


@app.command("import-strimzi", epilog=show_examples("headgate import-strimzi /etc/kafka/server.properties"))
def import_strimzi(
    file: Annotated[Path, typer.Argument(help="A broker's server.properties, or a Kafka resource.")],
) -> None:
    """Convert the settings of Strimzi's quotas plugin. It prints equivalent settings of Headgate."""
    from connectors.component import read_named_file
    from deploy.policy_commands.strimzi import import_properties

    try:
        content = read_named_file(file, "a broker's properties")
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    typer.echo(import_properties(content, str(file)).as_yaml(), nl=False)


@app.command("forget", epilog=show_examples("headgate forget --cluster payments --broker 7 --log-dir /disk2"))
def forget(
    cluster: Annotated[str, typer.Option(help="Name of the watched cluster.")],
    broker: Annotated[int, typer.Option(min=0, help="The broker's node id.")],
    log_dir: Annotated[str, typer.Option(help="The log dir's path on the broker.")],
    reason: Reason = "",
    timeout: Timeout = 60.0,
    settings: SettingsFile = None,
) -> None:
    """Forget the last reading of a log dir. It is for a dir that is gone or has failed and holds producers back.

    The log dir counts again once its broker reads it. The audit has the command, and the decision that answers it.
    """
    from deploy.inspection.requests import forget_log_dir

    print_sentence(forget_log_dir(load_asked(settings), cluster, broker, log_dir, reason, timeout).explanation)


@app.command("adopt", epilog=show_examples("headgate adopt --cluster payments --reason 'set up again'"))
def adopt(
    cluster: Annotated[str, typer.Option(help="Name of the watched cluster.")],
    reason: Reason = "",
    timeout: Timeout = 60.0,
    settings: SettingsFile = None,
) -> None:
    """Adopt another Kafka cluster behind the same address. Its state begins empty.

    Until then the alert `cluster-replaced` fires, its readings do not count, and nothing is set on it.
    """
    from deploy.inspection.requests import adopt_cluster

    print_sentence(adopt_cluster(load_asked(settings), cluster, reason, timeout).explanation)
