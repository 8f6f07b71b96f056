"""The base of all policies' settings: a block of defaults, with overrides per cluster by name or glob."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Self, TypeVar

from msgspec import structs
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import InitErrorDetails, PydanticCustomError

from policies.decisions import Mode
from policies.pauses import PolicyPause
from policies.units import Duration, PositiveDuration, from_millis, parse_duration

Settings = TypeVar("Settings", bound="PolicySettings")
_GLOB = re.compile(r"[*?[]")


@dataclass(frozen=True)
class _AsWritten:
    """A block without its overrides, with its shorthands. Settings compare equal however they are written."""

    block: Mapping[str, Any] = field(compare=False)


class PolicySettings(BaseModel):
    """One policy's block. Subclasses add the policy's own settings.

    `clusters` maps a name or glob to overrides of this block; the first match wins. Every override is validated
    together with the defaults when the block is read, so a mistake shows at its own path at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    mode: Mode = Field(default=Mode.ACTIVE, description="`shadow` decides and publishes, but no actuator acts.")
    alert_grace: Duration = Field(
        default=parse_duration("0s"), description="An alert's condition must hold this long before it fires."
    )
    alert_repeat: PositiveDuration = Field(
        default=parse_duration("4h"),
        description="An alert that goes on firing is repeated this often, each 12h at least.",
    )
    alert_refresh: PositiveDuration = Field(
        default=parse_duration("60s"),
        description="While an alert fires, its summary follows the readings, at most this often.",
    )
    clusters: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Overrides by cluster name or glob, in order; the first match wins."
    )
    _as_written: _AsWritten = PrivateAttr(default_factory=lambda: _AsWritten({}))
    _resolved: dict[str, Self] = PrivateAttr(default_factory=dict)
    _globs: frozenset[str] = PrivateAttr(default=frozenset())
    _quiet: PolicyPause | None = PrivateAttr(default=None)

    @classmethod
    def expand(cls, block: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a shorthand (a preset) in one block by the settings that it stands for; by default there is none."""
        return dict(block)

    @classmethod
    def overridden(cls, block: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
        """A block with an override laid over it field by field; neither has its shorthands expanded."""
        return {**block, **override}

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthands(cls, block: Any) -> Any:
        return cls.expand(block) if isinstance(block, Mapping) else block

    @model_validator(mode="wrap")
    @classmethod
    def _with_overrides(cls, block: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Validate the overrides, too, even if the defaults have mistakes, so that all mistakes show at once."""
        try:
            settings = handler(block)
        except ValidationError as error:
            mistakes = _prefix_errors((), error)
            if any(mistake.get("loc", ())[:1] == ("clusters",) for mistake in mistakes):
                raise
            overrides = block.get("clusters") if isinstance(block, Mapping) else None
            _, others = _try_each(overrides if isinstance(overrides, Mapping) else {}, cls.model_validate)
            raise ValidationError.from_exception_data(cls.__name__, mistakes + others) from None
        if isinstance(block, Mapping):  # else they are settings already
            settings._as_written = _AsWritten({name: block[name] for name in block if name != "clusters"})
            settings._resolved, mistakes = _try_each(settings.clusters, settings._apply)
            if mistakes:
                raise ValidationError.from_exception_data(cls.__name__, mistakes)
            settings._globs = frozenset(filter(_GLOB.search, settings._resolved))
        return settings

    def _apply(self, override: Mapping[str, Any]) -> Self:
        if "clusters" in override:
            nested = InitErrorDetails(type="extra_forbidden", loc=("clusters",), input=override["clusters"])
            raise ValidationError.from_exception_data("override", [nested])
        return type(self).model_validate(self.overridden(self._as_written.block, override))

    def for_cluster(self, cluster: str) -> Self:
        """The settings in force for a cluster: the first override whose name or glob matches, else the defaults."""
        globs = self._globs
        for pattern, resolved in self._resolved.items():
            # In a fleet nearly all patterns are names, which are compared much faster than globs.
            if fnmatchcase(cluster, pattern) if pattern in globs else pattern == cluster:
                return resolved
        return self

    @property
    def acts(self) -> bool:
        """Whether these settings let an actuator carry the decisions out, as far as the policy's block decides it."""
        return True

    @property
    def is_quiet(self) -> bool:
        """Whether the policy only watches now: alerts wait, too."""
        return self._quiet is not None

    @property
    def frozen_until(self) -> datetime | None:
        """Until when actuators leave everything as it is set; None: they carry decisions out, or take them back.

        A policy that is in shadow mode anyway has set nothing to keep. Its decisions must not look like those of an
        active one that is paused: if the loop dies, an actuator would carry out their fallback after the pause.
        """
        return from_millis(self._quiet.until_ms) if self._quiet is not None and self._quiet.keeps else None

    def while_quiet(self, quiet: PolicyPause) -> Self:
        """Return these settings while the policy only watches."""
        settings = self.model_copy(update={"mode": Mode.SHADOW})
        settings._quiet = quiet if self.mode is Mode.ACTIVE else structs.replace(quiet, keeps=False)
        return settings

    def with_defaults(self, defaults: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return these settings with further defaults for some clusters, by name; any value in the file wins over them.

        Raises ValidationError if a default does not fit the other settings.
        """
        named: dict[str, dict[str, Any]] = {}
        for cluster, block in defaults.items():
            override = next((own for name, own in self.clusters.items() if fnmatchcase(cluster, name)), {})
            named[cluster] = {**{k: v for k, v in block.items() if k not in self._as_written.block}, **override}
        # The first match wins, so names come before globs.
        others = {name: own for name, own in self.clusters.items() if name not in named}
        return type(self).model_validate({**self._as_written.block, "clusters": {**named, **others}})

    def overrides(self) -> Mapping[str, Self]:
        """The settings that each override makes of the defaults, by the name or glob it is for."""
        return dict(self._resolved)

    def everywhere(self) -> Iterator[Self]:
        """The settings in force anywhere: the defaults, and what each override makes of them."""
        yield self
        yield from self._resolved.values()

    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when any of these settings does.

        Overrides for other clusters and the pace of summaries do not count: they do not change the present decisions.
        """
        counted = self.model_dump_json(exclude={"clusters", "alert_refresh"})
        return hashlib.sha256(counted.encode()).hexdigest()[:12]


def _try_each(
    overrides: Mapping[str, Any], apply: Callable[[Any], Settings]
) -> tuple[dict[str, Settings], list[InitErrorDetails]]:
    """Return what the overrides make of the defaults, by name or glob, and the mistakes in the others."""
    resolved: dict[str, Settings] = {}
    mistakes: list[InitErrorDetails] = []
    for pattern, override in overrides.items():
        try:
            resolved[pattern] = apply(override)
        except ValidationError as error:
            mistakes += _prefix_errors(("clusters", str(pattern)), error)
    return resolved, mistakes


def _prefix_errors(place: tuple[str, ...], error: ValidationError) -> list[InitErrorDetails]:
    return [_remake(e["type"], (*place, *e["loc"]), e["msg"], e["input"]) for e in error.errors(include_url=False)]


def merge_errors(title: str, found: Iterable[tuple[str, str]], error: ValidationError | None = None) -> ValidationError:
    """Make one error of pydantic's mistakes and further ones, without the input, which may hold a secret.

    A further mistake is its path, such as ``health.member_url``, and a sentence.
    """
    of_fields = [] if error is None else error.errors(include_url=False)
    details = [_remake(each["type"], each["loc"], each["msg"]) for each in of_fields]
    details += [_remake("value_error", tuple(path.split(".")), sentence) for path, sentence in found]
    return ValidationError.from_exception_data(title, details, hide_input=True)


def _remake(kind: str, place: tuple[int | str, ...], message: str, given: Any = "(hidden)") -> InitErrorDetails:
    """Make an error again: of most of pydantic's own the context is gone."""
    return InitErrorDetails(type=PydanticCustomError(kind, "{message}", {"message": message}), loc=place, input=given)
