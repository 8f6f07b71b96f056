"""What actuators that try a decision until it is done or expires have in common."""

from connectors.actuation.loop import Follower, Loop, parsed
from connectors.actuation.standing import Standing
from connectors.actuation.worker import Worker, utc_now

__all__ = ["Follower", "Loop", "Standing", "Worker", "parsed", "utc_now"]
