"""The I/O of each of Headgate's own policies: one module per policy, each with its `CONNECTORS`."""
