"""The I/O of the sessions policy: collectors, the unload actuator, the ownership agent, metrics and page section."""
