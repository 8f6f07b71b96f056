"""Valid names of BookKeeper clusters: each name becomes a znode in the registry, beside znodes of other kinds."""

import re

RESERVED_NAMES = frozenset(
    {"bootstrap", "clients", "clusters", "committed", "copies", "directive", "lease", "orchestrator", "switch-target"}
)
"""What else lies in the registry where PIP-477 has a znode for each cluster."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def why_not_a_name(name: str) -> str | None:
    """What is wrong with a name; None where nothing is."""
    if not _NAME.fullmatch(name):
        return (
            "becomes the name of a znode: 1 to 63 letters, digits, dots, underscores and hyphens, the first of them a "
            "letter or digit"
        )
    return (
        f"in the registry {name} is the name of something else: choose another one" if name in RESERVED_NAMES else None
    )
