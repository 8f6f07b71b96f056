"""The terminal: options of commands, output, logs, and completion in a shell."""
