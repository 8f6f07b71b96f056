"""Checks a settings file: errors, warnings, and the settings that result from it."""
