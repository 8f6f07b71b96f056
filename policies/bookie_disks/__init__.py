"""The bookie-disks policy: how fast producers may publish while the disks of bookies fill up."""

from policies.bookie_disks.decisions import BookieThrottle
from policies.bookie_disks.policy import NAME, BookieDisksPolicy
from policies.bookie_disks.readings import BookieDisks
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksState

__all__ = [
    "NAME",
    "BookieDisks",
    "BookieDisksPolicy",
    "BookieDisksSettings",
    "BookieDisksState",
    "BookieThrottle",
]
