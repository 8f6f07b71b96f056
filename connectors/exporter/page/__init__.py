"""The status page and its JSON API: what is in force in each cluster, for people and for scripts."""
