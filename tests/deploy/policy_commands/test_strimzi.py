"""Import of the Strimzi quotas plugin's properties: what it maps, and what it refuses as the plugin does."""

import pytest
import yaml

from deploy.policy_commands.strimzi import import_properties
from deploy.settings.application import Settings
from policies.errors import UserError

P = "client.quota.callback.static."
LIMIT = f"{P}storage.per.volume.limit.min.available"
DRAFT = f"{P}storage.perVolumeLimit"


def throttle(*lines: str) -> dict[str, object]:
    imported = yaml.safe_load(import_properties("\n".join(lines).encode(), "f").as_yaml())
    Settings(**imported)
    return dict(imported["policies"]["throttle"])


def test_the_released_plugins_keys_become_settings() -> None:
    text = f"""
        client.quota.callback.class=io.strimzi.kafka.quotas.StaticQuotaCallback
        {P}kafka.admin.bootstrap.servers=kafka:9092
        {P}produce=1000000
        {P}storage.check-interval=10
        {LIMIT}.bytes=1073741824
        {P}throttle.factor.fallback=0.3
        {P}throttle.factor.validity.duration=PT2M30S
        {P}excluded.principal.name.list=User:alice
    """
    imported = import_properties(text.encode(), "f")
    assert imported.settings == {
        "kafka": {"bootstrap_servers": "kafka:9092"},
        "clusters": {"imported": {"kafka": {"bootstrap_servers": "kafka:9092", "poll_interval": "10s"}}},
        "policies": {
            "throttle": {
                "preset": "strimzi",
                "hard": {"available_bytes_below": 1073741824},
                "fallback_factor": 0.3,
                "validity": "2m30s",
            }
        },
    }
    notes = "\n".join(imported.notes)
    assert "produce=1000000" in notes
    assert "User:alice" in notes
    assert "Remove client.quota.callback.class from the brokers" in notes
    assert yaml.safe_load(imported.as_yaml()) == imported.settings


def test_the_drafts_soft_and_hard_limits_of_different_kinds_become_settings() -> None:
    found = throttle(
        f"{DRAFT}.availableBytesBelow.soft=5000000000",
        f"{DRAFT}.availableRatioBelow.hard=0.01",
        f"{P}fallback.throttle.factor=0.0",
        f"{P}storage.volume.source=cluster",
    )
    assert found == {
        "preset": "strimzi",
        "soft": {"available_bytes_below": 5000000000},
        "hard": {"available_ratio_below": 0.01},
        "fallback_factor": 0.0,
    }


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param([f"{LIMIT}.bytes=1", f"{LIMIT}.ratio=0.1"], "more than one hard limit", id="two hard"),
        pytest.param([f"{LIMIT}.bytes=1", f"{DRAFT}.availableRatioBelow.hard=0.1"], "more than one hard", id="mixed"),
        pytest.param(
            [f"{DRAFT}.availableBytesBelow.soft=1", f"{DRAFT}.availableRatioBelow.soft=0.1"],
            "more than one soft limit",
            id="two soft",
        ),
        pytest.param([f"{LIMIT}.ratio=NaN"], "must be a number", id="NaN"),
        pytest.param([f"{LIMIT}.bytes=-1"], "at least 0", id="negative bytes"),
        pytest.param([f"{LIMIT}.ratio=-0.1"], "at least 0", id="negative ratio"),
        pytest.param([f"{LIMIT}.ratio=1.1"], "at most 1", id="ratio above 1"),
        pytest.param([f"{LIMIT}.bytes=plenty"], "must be a number", id="no number"),
        pytest.param([f"{P}throttle.factor.fallback=2"], "at most 1", id="fallback above 1"),
        pytest.param([f"{P}throttle.factor.validity.duration=5m"], "ISO 8601", id="validity"),
        pytest.param([f"{P}throttle.factor.validity.duration=-PT5M"], "ISO 8601", id="negative validity"),
        pytest.param([f"{P}throttle.factor.validity.duration=PT0S"], "ISO 8601", id="no validity"),
        pytest.param([f"{LIMIT}.bytes=1e3"], "available_bytes_below: 1000.0 is not a size", id="a fraction of a byte"),
        pytest.param([f"{LIMIT}.bytes=\\u00"], r"\\u00 is no character", id="half an escape"),
        pytest.param([f"{P}storage.check-interval=often"], "whole number of seconds", id="interval"),
        pytest.param([f"{LIMIT}.bytes=1", f"{P}storage.volume.source=local"], "local allows no", id="local source"),
        pytest.param(
            [f"{DRAFT}.availableBytesBelow.soft=1", f"{DRAFT}.availableBytesBelow.hard=2"], "must lie above", id="order"
        ),
        pytest.param(["log.dirs=/data"], "the quotas plugin is not configured", id="no plugin"),
    ],
)
def test_what_the_plugin_refuses_is_refused(lines: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        import_properties("\n".join(lines).encode(), "server.properties")
    assert str(refused.value).startswith("server.properties: ")


def test_every_refusal_shows_at_once() -> None:
    with pytest.raises(UserError) as refused:
        import_properties(f"{LIMIT}.bytes=-1\n{P}throttle.factor.fallback=7".encode(), "f")
    assert len(str(refused.value).splitlines()) == 2


def test_what_stands_in_a_value_is_a_comment_whatever_it_holds() -> None:
    imported = import_properties(f"{LIMIT}.bytes=1\n{P}produce=5\\nhttp: {{port: 1}}\\r\\u2028".encode(), "f")
    assert yaml.safe_load(imported.as_yaml()) == imported.settings


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_file_is_read_in_either_encoding_that_brokers_have(encoding: str) -> None:
    lines = f"# für alle\n{LIMIT}.bytes=1\n{P}excluded.principal.name.list=User:jürgen"
    assert any("User:jürgen" in note for note in import_properties(lines.encode(encoding), "f").notes)


def test_an_unknown_key_of_the_plugin_is_named() -> None:
    assert any("weather" in note for note in import_properties(f"{P}weather=1".encode(), "f").notes)
