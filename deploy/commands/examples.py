"""Examples at the end of the commands' help; a test checks that their options exist."""

EXAMPLES = {
    "up": (
        "headgate up",
        "headgate up --data-dir ~/headgate --brokers 3",
    ),
    "run": (
        "headgate run -s headgate.yaml",
        "HEADGATE_SETTINGS=headgate.yaml headgate run",
    ),
    "collect": ("headgate collect -s headgate.yaml",),
    "decide": (
        "headgate decide -s headgate.yaml",
        "headgate decide -s headgate.yaml --print-submit",
    ),
    "export": ("headgate export -s headgate.yaml",),
    "act": (
        "headgate act -s headgate.yaml",
        "headgate act -s headgate.yaml --release",
    ),
    "status": (
        "headgate status",
        "headgate status --cluster payments --watch",
        "headgate status --cluster 'dev-*' --json",
    ),
    "decisions": (
        "headgate decisions payments",
        "headgate decisions --policy isolation --cluster messaging",
    ),
    "alerts": (
        "headgate alerts",
        "headgate alerts --policy throttle --resolved",
    ),
    "explain": (
        "headgate explain payments",
        "headgate explain payments --at 14:45",
        "headgate explain payments --at '10m ago'",
    ),
    "pause": (
        'headgate pause throttle payments --for 2h --reason "disks are swapped"',
        "headgate pause throttle payments --release",
    ),
    "resume": ("headgate resume throttle payments",),
    "check": (
        "headgate check headgate.yaml",
        "headgate check headgate.yaml --effective",
    ),
    "doctor": (
        "headgate doctor -s headgate.yaml",
        "headgate doctor -s headgate.yaml --part act",
    ),
    "replay": (
        "headgate replay -s headgate.yaml events.jsonl",
        "headgate replay -s headgate.yaml --from '2h ago' --timeline",
    ),
}
"""By command."""


def show_examples(command: str) -> str:
    """Return a command's examples as the end of its help, which is not wrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in EXAMPLES[command])
