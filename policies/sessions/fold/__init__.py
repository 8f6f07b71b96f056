"""Folds readings into small read models; there are no rules here.

`cluster` holds all read models and routes each reading to one of them: `members` (sessions, health, reports), `nodes`
(bundles and registrations) or its own record of sources. Then `claims` derives which member claims which bundle: it
reads the other models, and none of them reads it.
"""
