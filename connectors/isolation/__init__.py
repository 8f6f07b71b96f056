"""The I/O of the isolation policy: collectors of bookies, metrics, its page section, and quarantine."""
