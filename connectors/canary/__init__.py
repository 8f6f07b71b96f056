"""A canary through the whole loop: whether a reading gets its decision, and how long that takes."""
