"""The commands of `headgate`."""
