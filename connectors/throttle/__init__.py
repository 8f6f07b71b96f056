"""The I/O of the throttle policy: the quota actuator, metrics and page section; Kafka's collector is in `kafka`."""
