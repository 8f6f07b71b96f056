"""Where Alertmanager is: mistakes are named without quoting what was given."""

from typing import Any

import pytest
from pydantic import ValidationError

from connectors.alertmanager.settings import AlertmanagerSettings
from tests.cases import for_each

GOOD = "http://alertmanager-0:9093"


def test_addresses_alone_will_do() -> None:
    settings = AlertmanagerSettings(urls=(GOOD, "https://alertmanager.example.org/prefix"))
    with settings.http_client() as client:
        assert client.follow_redirects is False


@for_each(
    ("given", "field", "remedy"),
    [
        ({"urls": []}, "urls", "at least 1 item"),
        ({"urls": ["alertmanager:9093"]}, "urls", "such as http://alertmanager-0:9093"),
        ({"urls": ["http://user:hunter2@alertmanager"]}, "urls", "without user and query"),
        ({"urls": [GOOD + "/api/v2/alerts"]}, "urls", "must end before /api/v2"),
        ({"urls": [GOOD + "?x=hunter2"]}, "urls", "without user and query"),
        ({"urls": [GOOD], "tls": {}}, "tls", "use https://"),
        ({"urls": [GOOD], "token": "hunter2", "token_file": "/dev/null"}, "token", "not both"),
        ({"urls": [GOOD], "token_file": "/does/not/exist"}, "token_file", "cannot be read"),
        ({"urls": [GOOD], "resend_interval": "0s"}, "resend_interval", "must be longer than 0s"),
    ],
)
def test_each_mistake_is_named_with_its_remedy(given: dict[str, Any], field: str, remedy: str) -> None:
    with pytest.raises(ValidationError) as refused:
        AlertmanagerSettings(**given)
    (error,) = refused.value.errors()
    assert error["loc"][0] == field
    assert remedy in error["msg"]
    assert "hunter2" not in str(refused.value)
