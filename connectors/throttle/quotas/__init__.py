"""The quota actuator: carries the throttle decisions out with Kafka's own client quotas."""
