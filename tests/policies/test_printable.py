"""Names that others gave, in sentences that a person reads: nothing in them is obeyed by a terminal."""

from policies.decisions import Alert
from tests.cases import case
from tests.policies.scenario import GB, SOFT_AND_HARD, Run, log_dirs, throttle

SPELLED = {
    "a line that looks like one of ours": ("/a\nresolved: all is well", "/a\\nresolved: all is well"),
    "colours, and a bell": ("/a\x1b[31m\x07", "/a\\x1b[31m\\x07"),
    "a turned direction": ("/a\u202egol.", "/a\\u202egol."),
    "other scripts stay": ("/дані/диск 1", "/дані/диск 1"),
}


def test_control_characters_of_names_are_spelled_out_in_every_sentence() -> None:
    for named, (log_dir, spelled) in SPELLED.items():
        with case(named):
            run = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 3, {log_dir: 4 * GB}))
            assert f"broker 3 {spelled} has 4.0 GB free" in run.last.explanation
            assert run.last.limiting is not None
            assert run.last.limiting.log_dir == log_dir, "what programs read is as it was"
            [alert] = run.alerts
            assert spelled in alert.summary
            assert alert.explanation == alert.summary


def test_what_is_read_back_stays_as_it_was_written() -> None:
    [alert] = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 3, {"/a\n\x1b": 4 * GB})).alerts
    assert Alert.model_validate_json(alert.model_dump_json()).summary == alert.summary
