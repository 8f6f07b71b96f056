"""How a copy or a deletion of a ledger ends, in a few words."""

from collections.abc import Callable

from connectors.bookkeeper.copier import CopyResult, NotPossibleError, NotRecordedError, SourceUnreadableError
from connectors.bookkeeper.gateway import JavaError, JvmDiedError
from connectors.zookeeper.json_znodes import ZnodeError

COPIED, EXISTS, PARTIAL, FOREIGN, DELETED = "copied", "exists", "our copy is partial", "foreign", "deleted"
UNRECORDED = "not recorded"


def end(act: Callable[[], CopyResult | None]) -> str:
    """Return how it ends: one of the words above, or the message of its error."""
    try:
        result = act()
    except NotRecordedError:
        return UNRECORDED
    except SourceUnreadableError as error:
        return f"unreadable: {error}"
    except (NotPossibleError, JvmDiedError, JavaError, ZnodeError) as error:
        return str(error)
    return DELETED if result is None else word(result)


def word(result: CopyResult) -> str:
    """Return the word for the result of a copy."""
    if not result.is_ours:
        return FOREIGN
    return result.outcome.value if result.is_equal else PARTIAL
