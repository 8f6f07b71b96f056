"""Verdicts of the bookie-disks policy: `bookies` on each bookie, `groups` on each placement group. All are pure."""
