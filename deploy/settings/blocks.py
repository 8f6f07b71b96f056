"""The base of the settings' blocks."""

from pydantic import BaseModel, ConfigDict


class SettingsBlock(BaseModel):
    """A block of the settings; unknown names are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
