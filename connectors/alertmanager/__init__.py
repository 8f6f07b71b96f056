"""Sends the loop's alerts to Alertmanager: repeats them while they fire, and resolves them when they end."""
