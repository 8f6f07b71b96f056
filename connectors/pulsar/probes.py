"""Checks for the doctor whether Pulsar's admin REST API grants us the rights that the settings need."""

import base64
from typing import Any

from connectors.collection import Probe, ProbeResult
from connectors.foreign_json import read_json
from connectors.http.rest import REST_READ_ERRORS
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from policies.observations import Outcome
from policies.units import UserError, counted


def superuser_probe(system: str, admin: AdminApi, what_for: str) -> Probe:
    """Make the check whether we are a superuser: only superusers may read the groups of bookies, or `what_for`."""

    def ask() -> ProbeResult:
        try:
            groups = admin.racks()
        except REST_READ_ERRORS.expected as error:
            return failed_probe(admin.settings, error, what_for)
        return ProbeResult(Outcome.OK, f"{counted(len(groups), 'group')}; {_principal(admin.settings)} is a superuser")

    return Probe(system, f"admin REST, to {what_for}", ask)


def failed_probe(settings: PulsarAdmin, error: BaseException, what_for: str) -> ProbeResult:
    """Return the result for a failed request."""
    outcome = REST_READ_ERRORS.outcome_of(error)
    remedies = (superuser_line(settings, what_for),) if outcome is Outcome.UNAUTHORIZED else ()
    return ProbeResult(outcome, REST_READ_ERRORS.detail_of(error), remedies)


def superuser_line(settings: PulsarAdmin, what_for: str) -> str:
    """Return the setting that gives us superuser rights."""
    if not settings.sends_token:
        return f"clusters.NAME.pulsar.token_file: the brokers want a token; one of a superuser may {what_for}"
    role = _principal(settings)
    return f"broker.conf: superUserRoles=…,{role} (and restart the brokers): only superusers may {what_for}"


def _principal(settings: PulsarAdmin) -> str:
    try:
        role = role_of(settings.bearer_token())
    except UserError:
        role = None
    return role or ("the token's role" if settings.sends_token else "anybody")


def role_of(token: str | None) -> str | None:
    """Return the role (`sub`) of a JSON web token, without a check of its signature; None for other tokens."""
    parts = (token or "").split(".")
    if len(parts) != 3:
        return None
    try:
        claims = read_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), Any)
    except ValueError:
        return None
    role = claims.get("sub") if isinstance(claims, dict) else None
    return role if isinstance(role, str) and role.isprintable() else None
