"""Answers questions about a running loop from its topics: the decisions in force, the alerts, and the reasons."""
