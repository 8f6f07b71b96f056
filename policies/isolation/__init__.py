"""The isolation policy: which bookies may hold whose data, and what about those that nobody assigned."""
