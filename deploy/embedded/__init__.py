"""Servers that Headgate starts itself."""
