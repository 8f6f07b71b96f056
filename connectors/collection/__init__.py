"""Common code of all collectors: schedule, change filter, errors, metrics, and checks for the doctor."""
