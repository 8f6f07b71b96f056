"""The status page and its JSON API: the present state of each cluster, for people and for scripts."""
