"""The quarantine actuator: moves unassigned bookies into a group of their own."""
