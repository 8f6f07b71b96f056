"""Pulsar's namespace isolation policies, in the form that both its metadata and its admin REST API use."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from connectors.collection.read_errors import first_problem
from policies.isolation.readings import BrokerIsolation


def _as_list(value: object) -> object:
    return () if value is None else value


def _as_number(value: object) -> object:
    """Pulsar writes numbers as texts here."""
    if isinstance(value, str):
        return int(value) if value.strip().lstrip("-").isdigit() else None
    return value


_Patterns = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Parameters(_Document):
    min_limit: Annotated[int | None, BeforeValidator(_as_number)] = None


class _Failover(_Document):
    parameters: Annotated[_Parameters, BeforeValidator(lambda value: value or {})] = _Parameters()


class IsolationPolicyDocument(_Document):
    """One policy, by its name in the map that holds it."""

    namespaces: _Patterns = ()
    primary: _Patterns = ()
    secondary: _Patterns = ()
    auto_failover_policy: _Failover | None = Field(default=None)


IsolationPolicyDocuments = dict[str, IsolationPolicyDocument]
_POLICIES: TypeAdapter[IsolationPolicyDocuments | None] = TypeAdapter(IsolationPolicyDocuments | None)


def parse_isolation_policies(data: bytes) -> IsolationPolicyDocuments:
    """A cluster's policies from its node; zero bytes are none.

    Raises:
        ValueError: they are something else; the message tells where.
    """
    try:
        return _POLICIES.validate_json(data) or {} if data.strip() else {}
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def broker_isolations(pulsar_cluster: str, policies: IsolationPolicyDocuments) -> Iterator[BrokerIsolation]:
    """The same as a reading has them, in their order: of several that fit a namespace brokers take the first."""
    for name, policy in policies.items():
        failover: dict[str, Any] = {}
        if policy.auto_failover_policy is not None:
            failover["min_available"] = policy.auto_failover_policy.parameters.min_limit
        yield BrokerIsolation(
            pulsar_cluster=pulsar_cluster,
            name=name,
            namespaces=policy.namespaces,
            primary=policy.primary,
            secondary=policy.secondary,
            **failover,
        )
