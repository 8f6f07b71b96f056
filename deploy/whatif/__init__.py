"""Replays recorded events, and compares the decisions under two settings.

`replaying` is the command, `recordings` reads the events, `timeline` compares decisions and prints them as a table.
"""
