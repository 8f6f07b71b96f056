"""The I/O of the isolation policy: collectors of bookies, the quarantine actuator, metrics and page section."""
