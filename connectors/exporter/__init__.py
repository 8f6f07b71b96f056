"""The exporter: follows the loop's topics, and serves their present state as metrics, a status page and a JSON API."""
