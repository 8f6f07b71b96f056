"""A pseudo-cluster whose readings measure whether and how fast the whole loop decides."""
