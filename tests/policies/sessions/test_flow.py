"""A step goes one way: fold, facts, judge, emit, alerts, timers."""

import ast
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import policies.sessions
from policies import book
from tests.cases import for_each
from tests.policies.sessions.course import Run, at, owned, session
from tests.policies.sessions.joined import connected

PACKAGE = Path(policies.sessions.__file__).parent
STAGES = ["fold", "facts", "judge", "emit", "alerts", "timers"]
"""In the order in which a step goes through them."""
HANDED_OVER_BY = (PACKAGE / "policy.py", Path(book.__file__))
"""The policy's step, and the host, which asks for the conditions and the timers last."""


def stage_of(module: str) -> str | None:
    """The stage that a module of the package belongs to, if any."""
    name = module.removeprefix("policies.sessions.").split(".")[0]
    return name if module.startswith("policies.sessions.") and name in STAGES else None


def modules(stage: str) -> list[Path]:
    return sorted((PACKAGE / stage).glob("*.py")) or [PACKAGE / f"{stage}.py"]


def imported(path: Path) -> set[str]:
    """The modules that a module imports, by their whole names."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {f"{n.module}.{a.name}" for n in nodes if isinstance(n, ast.ImportFrom) and n.module for a in n.names}
    return names | {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}


@for_each("stage", STAGES)
def test_a_stage_knows_none_that_comes_after_it(stage: str) -> None:
    known = {found for path in modules(stage) for name in imported(path) if (found := stage_of(name))}
    assert max(map(STAGES.index, known | {stage})) == STAGES.index(stage)


def stages_entered(run: Run, *observations: Any, seconds: float) -> list[str]:
    """The stages that the policy hands a step over to, as it does."""
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or Path(caller.f_code.co_filename) not in HANDED_OVER_BY:
            return
        stage = stage_of(frame.f_globals.get("__name__", ""))
        if stage is not None and (not entered or entered[-1] != stage):
            entered.append(stage)

    sys.setprofile(note)
    try:
        run.step(observations, at(seconds))
    finally:
        sys.setprofile(None)
    return entered


def test_a_step_enters_each_stage_once_and_in_order() -> None:
    run = Run().together(*connected("b1", "b2"), owned(0, "b1", "0xb1"))
    lost = stages_entered(run, session(5, "b1", "expired", "0xb1"), seconds=5)
    back = stages_entered(run, session(9, "b1", "connected", "0xnew"), seconds=9)
    assert lost == back == STAGES
    assert len(run.sessions) == 2
