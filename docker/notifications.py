"""Stands for the people whom Alertmanager notifies in compose.yaml: prints one line for each alert that it is sent."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = int(sys.argv[1]) if sys.argv[1:] else 5001
"""Where docs/reference/alertmanager.yaml sends to; a test names another one."""


def line_of(receiver: str, alert: dict[str, Any]) -> str:
    """What a pager would show."""
    labels, notes = alert["labels"], alert.get("annotations", {})
    about = f"{labels.get('severity', '')} {labels.get('alertname', '')} {labels.get('subject', '')}"
    return f"{receiver}: {alert['status']} {about}: {notes.get('summary', '')}"


class Receiver(BaseHTTPRequestHandler):
    """The path is the receiver's name, as in docs/reference/alertmanager.yaml."""

    def do_POST(self) -> None:
        """Print the alerts of one notification."""
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for alert in sent["alerts"]:
            sys.stdout.write(f"{line_of(self.path.strip('/'), alert)}\n")
        sys.stdout.flush()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The alerts are the log."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
