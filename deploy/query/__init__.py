"""Running the query: Spark sessions, the checkpoint, and the supervisor."""
