"""`headgate demo`: a fill, a throttle, a stop and a recovery on real brokers that it starts itself."""
