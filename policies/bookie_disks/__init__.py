"""The bookie-disks policy: how fast producers may publish while the disks of bookies fill up."""

from policies.bookie_disks.decisions import BookieThrottle
from policies.bookie_disks.readings import BookieDisks
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksState

NAME = "bookie_disks"

__all__ = ["NAME", "BookieDisks", "BookieDisksSettings", "BookieDisksState", "BookieThrottle"]
