"""Examples at the end of the commands' help; a test checks that their options exist."""

EXAMPLES = {
    "up": ("headgate up", "headgate up --data-dir ~/headgate --brokers 3"),
    "run": ("headgate run -s headgate.yaml", "HEADGATE_SETTINGS=headgate.yaml headgate run"),
    "collect": ("headgate collect -s headgate.yaml",),
    "decide": ("headgate decide -s headgate.yaml", "headgate decide -s headgate.yaml --print-submit"),
    "export": ("headgate export -s headgate.yaml",),
    "act": ("headgate act -s headgate.yaml", "headgate act -s headgate.yaml --release"),
    "status": (
        "headgate status",
        "headgate status --cluster payments --watch",
        "headgate status --cluster 'dev-*' --json",
    ),
    "decisions": ("headgate decisions payments", "headgate decisions --policy isolation --cluster messaging"),
    "alerts": ("headgate alerts", "headgate alerts --policy throttle --resolved"),
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
    "check": ("headgate check headgate.yaml", "headgate check headgate.yaml --effective"),
    "doctor": ("headgate doctor -s headgate.yaml", "headgate doctor -s headgate.yaml --part act"),
    "replay": (
        "headgate replay -s headgate.yaml events.jsonl",
        "headgate replay -s headgate.yaml --from '2h ago' --timeline",
    ),
    "topics create": ("headgate topics create -s headgate.yaml",),
    "topics check": ("headgate topics check -s headgate.yaml",),
    "topics acls": ("headgate topics acls decide --principal User:headgate-decide",),
    "checkpoint reset": (
        "headgate checkpoint reset -s headgate.yaml",
        "headgate checkpoint reset -s headgate.yaml --yes",
    ),
    "docs": ("headgate docs alerts",),
    "demo": ("headgate demo",),
    "import-strimzi": ("headgate import-strimzi /etc/kafka/server.properties",),
    "adopt": ("headgate adopt --cluster payments --reason 'set up again'",),
    "forget": ("headgate forget --cluster payments --broker 7 --log-dir /disk2",),
    "placement": (
        "headgate placement --cluster messaging",
        "headgate placement --cluster messaging --namespace acme/orders --what-if remove=bookie-3:3181",
    ),
    "promise": ("headgate promise strict --cluster messaging --namespace acme/orders",),
    "disks": ("headgate disks --cluster messaging",),
    "switch register": ("headgate switch register --cluster messaging --name new",),
    "switch unregister": ("headgate switch unregister --cluster messaging --name old",),
    "switch precheck": ("headgate switch precheck --cluster messaging --target new --explain",),
    "switch plan": ("headgate switch plan --cluster messaging --target new",),
    "switch start": (
        "headgate switch start --cluster messaging --target new --dry-run",
        "headgate switch start --cluster messaging --target new",
    ),
    "switch status": (
        "headgate switch status --cluster messaging --watch",
        "headgate switch status --cluster messaging --failed",
    ),
    "switch rollback": ("headgate switch rollback --cluster messaging --with-brokers",),
    "switch abort": ("headgate switch abort --cluster messaging",),
    "switch pause": ("headgate switch pause --cluster messaging",),
    "switch resume": ("headgate switch resume --cluster messaging",),
    "switch cleanup": (
        "headgate switch cleanup --cluster messaging",
        "headgate switch cleanup --cluster messaging --execute",
    ),
    "switch end": ("headgate switch end --cluster messaging",),
    "switch close-client": ("headgate switch close-client --cluster messaging --name old",),
}
"""By command."""


def show_examples(command: str) -> str:
    """Return a command's examples as the end of its help, which is not wrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in EXAMPLES[command])
