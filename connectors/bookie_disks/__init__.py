"""Reads the disks of bookies over HTTP, and slows publishing down through Pulsar's admin REST API."""
