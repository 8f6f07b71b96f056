"""The cache of jars: complete, damaged, missing; with a Maven repository on loopback."""

import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from deploy.console.terminal import SafeConsole
from deploy.java import jars
from deploy.java.jars import default_repository, ensure_jars, fetch_jars, missing_jars
from policies.units import UserError

CONTENT = {"alpha-1.0.jar": b"alpha", "beta-2.0.jar": b"beta"}
FETCHED = [f"fetching {name}" for name in CONTENT]


@dataclass
class Site:
    """A cache, a manifest, and a repository with the files of `offer`."""

    cache: Path
    manifest: Path
    repository: Path
    fetched: list[str] = field(default_factory=list)

    def expect(self, files: dict[str, bytes]) -> None:
        """Write the manifest."""
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        self.manifest.write_text("".join(f"{sums[name]}  tools/org/example/{name}\n" for name in reversed(files)))

    def offer(self, files: dict[str, bytes]) -> None:
        """Let the repository have these files."""
        for name in CONTENT:
            (self.repository / name).unlink(missing_ok=True)
        for name, content in files.items():
            (self.repository / name).write_bytes(content)

    def ensure(self) -> tuple[Path, ...]:
        """Ask for the jars of the manifest's one group."""
        return ensure_jars("tools", self.cache, self.fetched.append)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and prints nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Print nothing."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(tmp_path / "cache", tmp_path / "jars.sha256", tmp_path / "maven" / "org" / "example")
    site.repository.mkdir(parents=True)
    site.expect(CONTENT)
    site.offer(CONTENT)
    monkeypatch.setattr(jars, "_MANIFEST", site.manifest)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "maven"))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("HEADGATE_MAVEN_URL", f"http://127.0.0.1:{server.server_port}/")
        yield site
        server.shutdown()


def test_missing_jars_are_fetched_with_a_line_each_and_a_complete_cache_needs_no_repository(site: Site) -> None:
    assert missing_jars("tools", site.cache) == [*CONTENT]
    paths = site.ensure()
    assert paths == tuple(site.cache / "tools" / name for name in CONTENT)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert site.ensure() == paths
    assert site.fetched == FETCHED
    assert missing_jars("tools", site.cache) == []


@pytest.mark.parametrize("content", [None, b"", b"alpha and more", b"ALPHA"])
def test_damaged_jar_is_fetched_again(site: Site, content: bytes | None) -> None:
    path = site.ensure()[0]
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
        os.utime(path, (1, 1))
    assert site.ensure()[0].read_bytes() == b"alpha"
    assert site.fetched == [*FETCHED, "fetching alpha-1.0.jar"]


def test_jar_with_another_content_is_not_stored_and_named_with_both_sums(site: Site) -> None:
    site.offer(CONTENT | {"beta-2.0.jar": b"forged"})
    expected, found = hashlib.sha256(b"beta").hexdigest(), hashlib.sha256(b"forged").hexdigest()
    with pytest.raises(UserError, match=rf"beta-2.0.jar: .*expected sha256 {expected}, found {found}\): run again"):
        site.ensure()
    assert not (site.cache / "tools" / "beta-2.0.jar").exists()
    site.offer(CONTENT)
    assert len(site.ensure()) == 2


def test_an_unreachable_repository_is_told_with_jar_cache_cause_and_remedy_and_without_its_password(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.offer({"alpha-1.0.jar": b"alpha"})
    with pytest.raises(UserError, match=rf"group tools .* {site.cache}, and beta-2.0.jar .* \(status 404\)\. The netw"):
        site.ensure()
    for url, cause in (
        ("http://me:secret@127.0.0.1:9", "Connection refused"),
        ("mirror", "protocol"),
        ("http://[", ""),
    ):
        monkeypatch.setenv("HEADGATE_MAVEN_URL", url)
        with pytest.raises(UserError, match=rf"{cause}.*HTTPS_PROXY; .*HEADGATE_MAVEN_URL") as caught:
            site.ensure()
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_without_a_mirror_the_repository_is_that_of_the_ivy_inside_pyspark() -> None:
    address = httpx.URL(default_repository())
    assert (address.scheme, address.path.strip("/")) == ("https", "maven2")


def test_cache_that_cannot_be_made_is_named(site: Site) -> None:
    site.cache.write_text("a file where the folder should be")
    with pytest.raises(UserError, match=f"jars_dir: {site.cache}/tools/alpha-1.0.jar cannot be (read|written)"):
        site.ensure()


def test_unknown_group_is_refused(site: Site) -> None:
    with pytest.raises(ValueError, match="no group of jars named other"):
        ensure_jars("other", site.cache)


def test_command_fetches_all_groups_and_prints_a_users_error_in_one_line(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jars.main(["--cache-dir", str(site.cache)]) == 0
    assert capsys.readouterr().out.splitlines() == FETCHED
    assert jars.main(["other", "--cache-dir", str(site.cache)]) == 1
    assert capsys.readouterr().err == "there is no group of jars named other\n"


def test_nothing_comes_twice_onto_sparks_class_path() -> None:
    spark = find_spec("pyspark")
    assert spark is not None
    shipped = {path.name.rsplit("-", 1)[0] for path in (Path(str(spark.origin)).parent / "jars").glob("*.jar")}
    ours = {jar.name.rsplit("-", 1)[0] for jar in jars._read_group("spark")}
    assert "spark-sql-kafka-0-10_2.13" in ours
    assert shipped & ours == set()


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
