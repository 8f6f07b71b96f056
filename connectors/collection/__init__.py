"""The parts that all collectors share: when they poll, what they publish, how they name errors."""
