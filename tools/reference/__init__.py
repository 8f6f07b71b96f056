"""Generates the reference pages and schemas from the models and from the code that registers metrics."""
