"""The I/O of the sessions policy: collectors of sessions and ownership, the agent, and unloads."""
