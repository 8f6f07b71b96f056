"""The settings of one watched cluster: its connections, and the settings that each policy adds."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, create_model, model_validator

from connectors.registration import ClusterSources, connectors_of
from policies.registry import POLICIES
from policies.settings import merge_errors


class WatchedClusterBase(ClusterSources):
    """One watched cluster: how to read it, and how to carry its decisions out."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_together(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Report missing settings that a block needs together with the mistakes within the blocks."""
        try:
            cluster = handler(value)
        except ValidationError as error:
            given = value if isinstance(value, Mapping) else {}
            raise merge_errors(cls.__name__, _missing_settings(given.get), error) from None
        found = [*_missing_settings(lambda name: getattr(cluster, name)), *_policy_mistakes(cluster)]
        if found:
            raise merge_errors(cls.__name__, found)
        return cluster


def _missing_settings(given: Callable[[str], Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings of a cluster that need others which are missing, with a sentence each."""
    for kind in POLICIES.values():
        for name, setting in connectors_of(kind).cluster_settings.items():
            lacking = [path for path in setting.needs if given(path.partition(".")[0]) is None]
            if given(name) is not None and lacking:
                yield name, f"needs {lacking[0]}, too"


def _policy_mistakes(cluster: WatchedClusterBase) -> Iterator[tuple[str, str]]:
    for kind in POLICIES.values():
        for mistake in connectors_of(kind).mistakes(cluster):
            path, _, what = mistake.partition(": ")
            yield path, what


def _watched_cluster() -> Any:
    """Make the model of a cluster with the settings that each registered policy adds."""
    fields: dict[str, Any] = {
        name: (setting.model | None, Field(default=None, description=setting.description))
        for kind in POLICIES.values()
        for name, setting in connectors_of(kind).cluster_settings.items()
    }
    return create_model(
        "WatchedCluster", __base__=WatchedClusterBase, __doc__=WatchedClusterBase.__doc__, __module__=__name__, **fields
    )


WatchedCluster: Any = _watched_cluster()
