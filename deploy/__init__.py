"""Running Headgate: the command line, the application's settings, the embedded stack, and tools to inspect the loop."""
