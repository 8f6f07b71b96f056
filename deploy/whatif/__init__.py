"""Shows what other settings would have decided.

`timeline` compares the courses of two replays, `table` prints them in a terminal.
"""
