"""Publishes the judge's changes as drafts in words, as numbered and dated decisions, and as the switch's record."""
