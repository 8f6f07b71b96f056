"""A canary through the whole loop: how long it takes from a reading to its decision, and whether it answers at all."""
