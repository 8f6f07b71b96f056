"""The I/O of the throttle policy: collectors' settings, metrics, its page section, and quotas."""
