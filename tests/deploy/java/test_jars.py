"""The cache of jars: complete, damaged, missing; with a stand-in for Java that does what Ivy was seen to do."""

import fcntl
import hashlib
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.console.terminal import SafeConsole
from deploy.java import jars
from deploy.java.jars import ensure_jars, fetch_jars, groups
from policies.units import UserError

# As Ivy 2.5.3 prints it when a proxy on a closed port stands in its way.
IVY_OFFLINE = """\
:: resolving dependencies :: headgate#headgate-jars;working@vm
\tconfs: [spark]
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: org.apache.commons#commons-pool2;2.13.1
:::: ERRORS
\tServer access error at url https://mirror.invalid/pool2.pom (java.net.ConnectException: Connection refused)
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
"""
IVY_ONLINE = """\
\tfound org.example#alpha;1.0 in public
\tfound org.example#beta;2.0 in public
downloading https://mirror.invalid/org/example/alpha/1.0/alpha-1.0.jar ...
...... (63kB)
\t[SUCCESSFUL ] org.example#alpha;1.0!alpha.jar (111ms)
downloading https://mirror.invalid/org/example/beta/2.0/beta-2.0.jar ...
"""

# Ivy's last argument is the pattern of the files it retrieves: what is on offer goes to that folder.
FAKE_JAVA = """#!/bin/sh
here=$(dirname "$0")
if [ "$1" = -version ]; then echo 'openjdk version "17.0.15"' >&2; exit 0; fi
echo "$@" >> "$here/calls"
for pattern; do :; done
cp "$here"/offer/*.jar "$(dirname "$pattern")" 2>/dev/null
cat "$here/output"
"""

CONTENT = {"alpha-1.0.jar": b"alpha", "beta-2.0.jar": b"beta"}


@dataclass(frozen=True)
class Site:
    """A cache, a manifest, and an Ivy that has the files of `offer`."""

    cache: Path
    manifest: Path
    bin: Path

    def expect(self, files: dict[str, bytes]) -> None:
        """Write the manifest."""
        lines = (f"{hashlib.sha256(content).hexdigest()}  tools/{name}\n" for name, content in files.items())
        self.manifest.write_text("".join(lines))

    def offer(self, files: dict[str, bytes], output: str = IVY_ONLINE) -> None:
        """Let Ivy find these files and print this output."""
        for old in (self.bin / "offer").iterdir():
            old.unlink()
        for name, content in files.items():
            (self.bin / "offer" / name).write_bytes(content)
        (self.bin / "output").write_text(output)

    @property
    def ivy_calls(self) -> list[str]:
        """The arguments of each run of Ivy so far."""
        calls = self.bin / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def ensure(self, progress: list[str] | None = None) -> tuple[Path, ...]:
        """Ask for the jars of the manifest's one group."""
        return ensure_jars("tools", self.cache, ([] if progress is None else progress).append)

    def leftovers(self) -> list[Path]:
        """What a fetch should have cleared away."""
        return list(self.cache.glob(".fetching-*"))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    binaries = tmp_path / "jdk" / "bin"
    (binaries / "offer").mkdir(parents=True)
    (binaries / "java").write_text(FAKE_JAVA)
    (binaries / "java").chmod(0o755)
    manifest = tmp_path / "jars.sha256"
    monkeypatch.setattr(jars, "_MANIFEST", manifest)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.delenv(jars.SETTINGS_VARIABLE, raising=False)
    site = Site(tmp_path / "cache", manifest, binaries)
    site.expect(CONTENT)
    site.offer(CONTENT)
    return site


def test_missing_jars_are_fetched_with_progress(site: Site) -> None:
    progress: list[str] = []
    paths = site.ensure(progress)
    assert paths == tuple(site.cache / "tools" / name for name in CONTENT)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert progress == ["fetching alpha-1.0.jar", "fetching beta-2.0.jar"]
    assert site.leftovers() == []


def test_complete_cache_needs_no_ivy(site: Site) -> None:
    first = site.ensure()
    assert site.ensure() == first
    assert len(site.ivy_calls) == 1


@pytest.mark.parametrize("content", [None, b"", b"alpha and more", b"ALPHA"])
def test_damaged_jar_is_fetched_again(site: Site, content: bytes | None) -> None:
    path = site.ensure()[0]
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
        os.utime(path, (1, 1))
    assert site.ensure()[0].read_bytes() == b"alpha"
    assert len(site.ivy_calls) == 2


def test_changed_manifest_is_noticed(site: Site) -> None:
    site.ensure()
    newer = CONTENT | {"alpha-1.0.jar": b"alpha, again"}
    site.expect(newer)
    site.offer(newer)
    assert site.ensure()[0].read_bytes() == b"alpha, again"


def test_jar_with_another_content_is_deleted_and_named_with_both_sums(site: Site) -> None:
    site.offer(CONTENT | {"beta-2.0.jar": b"forged"})
    in_ivys_cache = site.cache / "ivy" / "org.example" / "beta" / "jars" / "beta-2.0.jar"
    in_ivys_cache.parent.mkdir(parents=True)
    in_ivys_cache.write_bytes(b"forged")
    expected, found = hashlib.sha256(b"beta").hexdigest(), hashlib.sha256(b"forged").hexdigest()
    with pytest.raises(UserError, match=rf"beta-2.0.jar: expected sha256 {expected}, found {found}\): run again"):
        site.ensure()
    assert not (site.cache / "tools" / "beta-2.0.jar").exists()
    assert not in_ivys_cache.exists()
    assert site.leftovers() == []
    site.offer(CONTENT)
    assert len(site.ensure()) == 2


def test_no_network_names_jars_cache_cause_and_remedy_in_one_line(site: Site) -> None:
    site.offer({}, IVY_OFFLINE)
    with pytest.raises(UserError) as caught:
        site.ensure()
    message = str(caught.value)
    for part in ("tools", str(site.cache), "ConnectException: Connection refused", "alpha-1.0.jar", "_IVY_SETTINGS"):
        assert part in message
    assert "\n" not in message
    assert site.leftovers() == []
    site.offer({"alpha-1.0.jar": b"alpha"}, IVY_OFFLINE)
    with pytest.raises(UserError, match=r": beta-2.0.jar\. The network"):
        site.ensure()


def test_remains_of_an_interrupted_fetch_do_no_harm(site: Site) -> None:
    (site.cache / ".fetching-tools").mkdir(parents=True)
    (site.cache / ".fetching-tools" / "alpha-1.0.jar").write_bytes(b"al")
    assert site.ensure()[0].read_bytes() == b"alpha"


def test_cache_that_cannot_be_made_is_named(site: Site) -> None:
    site.cache.write_text("a file where the folder should be")
    with pytest.raises(UserError, match=f"jars are missing in {site.cache}, and it cannot be written"):
        site.ensure()


def test_second_process_waits_and_then_finds_the_jars(site: Site) -> None:
    site.cache.mkdir()
    waiting = threading.Event()
    results: list[tuple[Path, ...]] = []

    def second() -> None:
        results.append(ensure_jars("tools", site.cache, lambda line: waiting.set()))

    with (site.cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(20)
        (site.cache / "tools").mkdir()
        for name, content in CONTENT.items():
            (site.cache / "tools" / name).write_bytes(content)
    thread.join()
    assert len(results[0]) == 2
    assert site.ivy_calls == []


def test_settings_for_a_mirror_reach_ivy(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "ivysettings.xml"
    monkeypatch.setenv("HEADGATE_IVY_SETTINGS", str(settings))
    with pytest.raises(UserError, match="there is no such file"):
        site.ensure()
    settings.write_text("<ivysettings/>")
    site.ensure()
    assert f"-settings {settings} " in site.ivy_calls[0]


def test_unknown_group_is_refused(site: Site) -> None:
    with pytest.raises(ValueError, match="no group of jars named other"):
        ensure_jars("other", site.cache)


def test_maintainers_write_the_manifest_of_what_came(site: Site) -> None:
    jars.write_manifest(site.cache)
    lines = site.manifest.read_text().splitlines()
    assert lines[0] == f"{hashlib.sha256(b'alpha').hexdigest()}  spark/alpha-1.0.jar"
    assert len(lines) == len(CONTENT) * len(groups())
    assert {"spark", "kafka", "quotas-plugin", "bookkeeper"} <= set(groups())


def test_command_prints_a_users_error_in_one_line(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.offer({}, IVY_OFFLINE)
    assert jars.main(["spark", "--cache-dir", str(site.cache)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_manifest_of_the_product_has_what_runs_the_query_and_the_broker() -> None:
    manifest = jars._read_manifest()
    assert "spark-sql-kafka-0-10_2.13-4.2.0.jar" in manifest["spark"]
    assert "kafka_2.13-4.3.1.jar" in manifest["kafka"]


def test_nothing_comes_twice_onto_sparks_class_path() -> None:
    shipped = {path.name.rsplit("-", 1)[0] for path in jars._ivy_jar().parent.glob("*.jar")}
    ours = {name.rsplit("-", 1)[0] for name in jars._read_manifest()["spark"]}
    assert shipped & ours == set()


def test_without_a_terminal_each_download_is_a_line(site: Site) -> None:
    lines: list[str] = []
    assert [[path.name for path in group] for group in fetch_jars(["tools"], site.cache, lines.append)] == [[*CONTENT]]
    assert lines == ["fetching alpha-1.0.jar", "fetching beta-2.0.jar"]


def test_on_a_terminal_one_bar_counts_the_jars_and_goes_at_the_end(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(jars, "SafeConsole", lambda **_: SafeConsole(stderr=True, force_terminal=True, width=120))
    fetch_jars(["tools"], site.cache, lambda line: pytest.fail(f"printed {line}"))
    assert "fetching jars, once" in (text := capsys.readouterr().err)
    assert "2/2" in text
    fetch_jars(["tools"], site.cache)
    assert capsys.readouterr().err == "", "nothing is missing"
