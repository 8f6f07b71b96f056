"""What each of Headgate's own policies has with I/O: one module a policy, each with its `CONNECTORS`."""
