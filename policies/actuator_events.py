"""The vocabulary that all actuators share to report what they did, refused or failed to do."""

from abc import ABC, abstractmethod
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field


class ActuatorEvent(BaseModel, ABC):
    """An actuator's report about one cluster; each kind is a subclass with further fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str]
    """The CloudEvents ``type``."""
    source: ClassVar[str]
    """The CloudEvents ``source``: the actuator."""

    cluster: str = Field(description="The watched cluster.")

    @abstractmethod
    def subject(self) -> str:
        """The CloudEvents ``subject``."""
