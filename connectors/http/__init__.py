"""HTTP: clients with a deadline, small servers, and TLS."""
