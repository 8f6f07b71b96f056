"""What other settings would have decided, for people.

`timeline` holds the courses of two replays against each other, `table` shows them in a terminal, `picture` in one page.
"""
