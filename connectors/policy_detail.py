"""The interface of a policy's section on the status page and in its API; `PolicyConnectors.detail` names it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from connectors.loop_snapshot import PolicyPicture


class PolicyDetail(BaseModel):
    """A policy's own part of what is shown of a cluster: numbers of its metrics and fields of its decisions."""

    model_config = ConfigDict(frozen=True)

    def charted(self) -> Mapping[str, float]:
        """What is drawn over the last hour, by name; a few, always the same."""
        return {}


@dataclass(frozen=True, slots=True)
class DetailKind:
    """How a policy's detail is made."""

    model: type[PolicyDetail]
    of: Callable[[PolicyPicture], PolicyDetail | None]
    """None: there is nothing to say of the cluster."""
