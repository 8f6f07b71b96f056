"""Answers questions about a running loop from its own topics: what is in force, what fires, and why."""
