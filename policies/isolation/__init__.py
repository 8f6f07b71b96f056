"""The isolation policy: the bookies that each namespace may use, and the quarantine of unassigned bookies."""

NAME = "isolation"
