"""The progress of a switch beside the registry, from which a switch goes on after a lost checkpoint.

The executor writes it from the record. The ledgers of the plan are not part of it: an inventory shows them, and the
executor's journal shows which of the target's ledgers are Headgate's copies.
"""

from msgspec.structs import replace

from policies.switching.plan import stage_counts
from policies.switching.readings import SwitchProgress
from policies.switching.state import ENDED, NEVER, Directive, Switch, SwitchStage
from policies.units import InstantMs

_FIELDS = tuple(name for name in SwitchProgress.model_fields if name not in ("ledgers", "commanded_ms"))
_PLANNED_AGAIN = frozenset({SwitchStage.BUILD, SwitchStage.PROMOTE})
_OVER = frozenset({SwitchStage.REJECTED, SwitchStage.DONE, SwitchStage.ROLLED_BACK})
"""Stages at which nothing depends on the plan any more, except copies that are to be deleted: these stay."""


def make_progress(switch: Switch, commanded_ms: InstantMs = NEVER) -> SwitchProgress:
    """Return the progress of a switch, with the time of the last command that was judged."""
    fields = {name: getattr(switch, name) for name in _FIELDS}
    return SwitchProgress(ledgers=dict(stage_counts(switch)), commanded_ms=commanded_ms, **fields)


def take_up(progress: SwitchProgress | None, directive: Directive | None, read_ms: InstantMs) -> Switch | None:
    """Return the switch to go on with; None if the directive in force is not one of this switch.

    Nothing is ordered before an inventory has shown the plan. The copies of a switch that was at `build` or `promote`
    are planned again. A clean-up goes back to `hold`, because each deletion needs a command from now on.

    Args:
        progress: as read; None: there is none.
        directive: as read with it. The executor writes it before the progress, so it may be later. It is earlier if its
            order was lost, because the executor lost its lease: once brokers were directed to the target, another one
            follows.
        read_ms: when both were read.
    """
    if progress is None or directive is None:
        return None
    switch = Switch(**{name: getattr(progress, name) for name in _FIELDS})
    if directive.epoch < progress.epoch:
        if switch.stage is SwitchStage.TRIGGERED or directive.target != switch.target:
            return None
    elif directive.epoch > progress.epoch:
        if switch.stage in ENDED or directive.target != switch.home:
            return None
        switch = replace(switch, stage=SwitchStage.ROLLBACK, attribution_only=False, epoch=directive.epoch)
    if switch.stage in _PLANNED_AGAIN:
        switch = replace(switch, stage=SwitchStage.LIVE_DUAL_READ)
    elif switch.stage is SwitchStage.CLEANUP and not switch.kept:
        switch = replace(switch, stage=SwitchStage.HOLD)
    if switch.stage is SwitchStage.TRIGGERED:
        return switch
    if switch.stage in _OVER:
        return replace(switch, settled=dict(sorted(progress.ledgers.items())))
    return replace(switch, confirm_ms=NEVER, recovering_ms=read_ms)
