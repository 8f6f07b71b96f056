"""Folds the promises given by command (`headgate promise`): for each namespace the last one counts."""

from msgspec.structs import replace

from policies.isolation.readings import MAX_NAMESPACES, NamespacePromise
from policies.isolation.state import BookieClusterState, GivenPromise
from policies.observations import Observation


def fold_promise(before: BookieClusterState, seen: Observation, reading: NamespacePromise) -> BookieClusterState:
    """What is promised after a command; one that is older than the last changes nothing."""
    promises = {given.namespace: given for given in before.promises}
    rules = "" if reading.promise is None else reading.promise.value
    given = GivenPromise(reading.namespace, rules, seen.at_ms, seen.id)
    last = promises.get(given.namespace)
    if last is not None and (given.at_ms, given.id) <= (last.at_ms, last.id):
        return before
    if last is None and len(promises) >= MAX_NAMESPACES:
        return before
    promises[given.namespace] = given
    return replace(before, promises=tuple(promises[name] for name in sorted(promises)))
