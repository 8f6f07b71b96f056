"""The I/O of the sessions policy: collectors, the unload actuator, metrics and page section."""
