"""Settings of the throttle policy with which each reading changes its cluster's factor, so each is decided on."""

TOTAL_BYTES = 1_000_000
EAGER = {
    "hard": {"available_bytes_below": 1},
    "soft": {"available_bytes_below": TOTAL_BYTES - 1},
    "min_hold": "0s",
    "min_change": 0.0,
    "recovery_margin": 0.0,
    "heartbeat": "1h",
    "anticipate": False,
}
