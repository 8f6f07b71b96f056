"""Java: the runtime, and the jars."""
