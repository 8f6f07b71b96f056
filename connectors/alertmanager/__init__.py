"""Alerts to Alertmanager: what the loop says is firing, kept alive there while it fires, and resolved once it has."""
