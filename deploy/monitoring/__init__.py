"""Monitoring of Headgate itself: alert rules for Prometheus and dashboards for Grafana, shipped as files."""
