"""Running it: the command, the whole application's settings, the embedded stack, and what reports on the loop."""
