"""Dashboards for Grafana, which the package ships as files."""
