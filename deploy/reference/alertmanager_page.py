"""docs/reference/alertmanager.yaml: an Alertmanager configuration with inhibition rules from each policy's alerts."""

from collections.abc import Iterator
from typing import Any

import yaml

from policies.policy import Inhibition
from policies.registry import POLICIES

_INTRODUCTION = """\
# A configuration of Alertmanager to begin with. Made by `make generate` from what each policy declares: the
# `inhibit_rules` say which alert explains which, so that one full disk pages once. Put your receivers in place of the
# two below, or take over the rules alone. `amtool check-config` accepts it as it stands.

"""


def alertmanager_page() -> str:
    """Return the whole file."""
    return _INTRODUCTION + yaml.safe_dump(_configuration(), sort_keys=False, width=120)


def _configuration() -> dict[str, Any]:
    return {
        "route": {
            "receiver": "tickets",
            "group_by": ["cluster", "policy"],
            "group_wait": "10s",
            "group_interval": "1m",
            "repeat_interval": "4h",
            "routes": [
                {"matchers": ['severity="critical"'], "receiver": "pager"},
                {"matchers": ['severity="info"'], "receiver": "nobody"},
            ],
        },
        "receivers": [
            {"name": "pager", "webhook_configs": [{"url": "http://127.0.0.1:5001/pager"}]},
            {"name": "tickets", "webhook_configs": [{"url": "http://127.0.0.1:5001/tickets"}]},
            {"name": "nobody"},
        ],
        "inhibit_rules": list(_rules()),
    }


def _rules() -> Iterator[dict[str, Any]]:
    for kind in POLICIES.values():
        yield from (_rule(kind.name, each) for each in kind.inhibitions)


def _rule(policy: str, inhibition: Inhibition) -> dict[str, Any]:
    of_policy = f'policy="{policy}"'
    return {
        "source_matchers": [of_policy, f'alertname="{inhibition.cause}"'],
        "target_matchers": [of_policy, f'alertname=~"{"|".join(inhibition.effects)}"'],
        "equal": list(inhibition.same),
    }
