"""Watching Headgate: rules for Prometheus and dashboards for Grafana, as files to take."""
