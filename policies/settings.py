"""What all policies' settings have in common: a block of defaults, and overrides per cluster by name or glob."""

import hashlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType

from policies.decisions import Mode
from policies.units import Duration, PositiveDuration, parse_duration

_CORE_ERRORS = frozenset(get_args(ErrorType))


class PolicySettings(BaseModel):
    """One policy's block. Subclasses add the policy's own settings.

    `clusters` maps a name or glob to overrides of this block; the first match wins. Every override is validated
    together with the defaults when the block is read, so a mistake shows at its own path at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    mode: Mode = Field(default=Mode.ACTIVE, description="`shadow` decides and publishes, but no actuator carries out.")
    alert_grace: Duration = Field(
        default=parse_duration("0s"), description="An alert's condition must hold this long before it fires."
    )
    alert_repeat: PositiveDuration = Field(
        default=parse_duration("4h"), description="An alert that goes on firing is repeated this often."
    )
    clusters: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Overrides by cluster name or glob, in order; the first match wins."
    )
    _resolved: dict[str, Self] = PrivateAttr(default_factory=dict)

    @classmethod
    def expand(cls, block: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a shorthand in one block (a preset) by what it stands for; by default there is none."""
        return dict(block)

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthands(cls, block: Any) -> Any:
        return cls.expand(block) if isinstance(block, Mapping) else block

    @model_validator(mode="wrap")
    @classmethod
    def _all_mistakes(cls, block: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Where the defaults hold mistakes, the overrides' own are found as well, so that all show at once."""
        try:
            return handler(block)
        except ValidationError as error:
            mistakes = _at((), error)
            if any(mistake.get("loc", ())[:1] == ("clusters",) for mistake in mistakes):
                raise
            mistakes += cls._mistakes_of_overrides(block.get("clusters") if isinstance(block, Mapping) else None)
            raise ValidationError.from_exception_data(cls.__name__, mistakes) from None

    @classmethod
    def _mistakes_of_overrides(cls, overrides: Any) -> list[InitErrorDetails]:
        found: list[InitErrorDetails] = []
        for pattern, override in overrides.items() if isinstance(overrides, Mapping) else ():
            try:
                cls.model_validate(override)
            except ValidationError as error:
                found += _at(("clusters", str(pattern)), error)
        return found

    @model_validator(mode="after")
    def _resolve_overrides(self) -> Self:
        errors: list[InitErrorDetails] = []
        for pattern, override in self.clusters.items():
            try:
                self._resolved[pattern] = self._with(override)
            except ValidationError as error:
                errors.extend(_at(("clusters", pattern), error))
        if errors:
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self

    def _with(self, override: Mapping[str, Any]) -> Self:
        if "clusters" in override:
            raise ValidationError.from_exception_data("override", [_nested_clusters(override["clusters"])])
        own = self.model_dump(exclude={"clusters"}, exclude_unset=True)
        return type(self).model_validate({**own, **self.expand(override)})

    def for_cluster(self, cluster: str) -> Self:
        """The settings in force for a cluster: the first override whose name or glob matches, else the defaults."""
        for pattern, resolved in self._resolved.items():
            if fnmatchcase(cluster, pattern):
                return resolved
        return self

    def everywhere(self) -> Iterator[Self]:
        """The settings in force anywhere: the defaults, and what each override makes of them."""
        yield self
        yield from self._resolved.values()

    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when any of these settings does (overrides of others do not count)."""
        return hashlib.sha256(self.model_dump_json(exclude={"clusters"}).encode()).hexdigest()[:12]


def _at(place: tuple[str, ...], error: ValidationError) -> list[InitErrorDetails]:
    return [
        InitErrorDetails(type=_kind(e), loc=(*place, *e["loc"]), input=e["input"], ctx=e.get("ctx", {}))
        for e in error.errors(include_url=False)
    ]


def _kind(error: ErrorDetails) -> str | PydanticCustomError:
    """Only pydantic's core errors are known by name; others, such as those of a size, are made again."""
    if error["type"] in _CORE_ERRORS:
        return error["type"]
    return PydanticCustomError(error["type"], "{message}", {"message": error["msg"]})


def _nested_clusters(given: Any) -> InitErrorDetails:
    return InitErrorDetails(type="extra_forbidden", loc=("clusters",), input=given)
