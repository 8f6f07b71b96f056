"""Do what `docker/Dockerfile` says in a folder, where no engine runs, and run what comes of it as a pod would.

    sudo python docker/prove.py /var/tmp/headgate-image

The base image is bootstrapped from Debian's packages (`debootstrap`); each ENV, USER, WORKDIR, COPY and RUN is then
done as it stands, in a chroot. What is run afterwards has a number for a user, no capability, a root that cannot be
written to, a volume, a folder for temporary files, and a network of its own with nothing in it but loopback: whatever
would be fetched at the start fails. A folder that is there already is taken as it is; remove it to begin anew.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SUITE = "bookworm"
USER_ID = 10001
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TRUST = "usr/local/share/ca-certificates"
_READY_SECONDS, _DRAIN_SECONDS, _DEMO_SECONDS = 240, 90, 400
_GROUPS = ("spark", "kafka", "bookkeeper")
_LEDGER_COPIER = """
from pathlib import Path
from connectors.bookkeeper.gateway import BookKeeperJvm
from deploy.java.jars import ensure_jars
from deploy.java.jvm import find_java
import os
jars = ensure_jars("bookkeeper", Path(os.environ["HEADGATE_JARS_DIR"]))
jvm = BookKeeperJvm(find_java(), jars, Path("/var/lib/headgate/copier"))
jvm.start()
print("LedgerCopier is compiled and loaded")
jvm.close()
"""


@dataclass
class Image:
    """What the Dockerfile has said so far."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    user: str = "root"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    healthcheck: str = ""


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Each (word, rest of its line, continued lines joined), comments left out."""
    text = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.MULTILINE))
    for line in filter(str.strip, text.splitlines()):
        word, _, rest = line.strip().partition(" ")
        yield word, rest.strip()


def build(root: Path) -> Image:
    """Do each instruction; what cannot be done ends it."""
    image, is_new = Image(root), not (root / "opt").exists() or not (root / ".proven").exists()
    if is_new:
        _bootstrap(root)
    for word, rest in instructions((REPOSITORY / "docker/Dockerfile").read_text()):
        match word:
            case "ENV":
                image.environment |= _assigned(rest, image.environment)
            case "USER":
                image.user = rest
            case "WORKDIR":
                image.folder = rest
            case "ENTRYPOINT":
                image.entrypoint = [part.strip(' "') for part in rest.strip("[]").split(",")]
            case "HEALTHCHECK":
                image.healthcheck = rest.partition("CMD ")[2]
            case "COPY" if is_new:
                _copy(image, rest)
            case "RUN" if is_new:
                _said(f"RUN {rest[:100]}")
                _in_chroot(image, ["/bin/sh", "-c", rest])
    (root / ".proven").touch()
    return image


def _bootstrap(root: Path) -> None:
    """What stands for the base image: Debian with its Python, which is of the same version."""
    root.mkdir(parents=True, exist_ok=True)
    _said(f"debootstrap {SUITE}, in place of the base image")
    subprocess.run(["debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, str(root)], check=True)
    for own in Path("/", _TRUST).glob("*.crt"):  # of a network that has authorities of its own
        shutil.copy(own, root / _TRUST)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "etc/hosts").touch()
    python = (
        "update-ca-certificates && apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-venv"
    )
    _in_chroot(Image(root), ["/bin/sh", "-c", f"{python} && ln -s /usr/bin/python3 /usr/local/bin/python"])


def _assigned(rest: str, known: dict[str, str]) -> dict[str, str]:
    pairs = (part.partition("=") for part in shlex.split(rest))
    return {name: re.sub(r"\$(\w+)", lambda m: known.get(m[1], ""), value) for name, _, value in pairs}


def _copy(image: Image, rest: str) -> None:
    words = shlex.split(rest)
    owner = next((word.partition("=")[2] for word in words if word.startswith("--chown=")), "root")
    *sources, target = [word for word in words if not word.startswith("--")]
    into = image.root / image.folder.lstrip("/") / target
    for source in sources:
        origin = REPOSITORY / source
        if origin.is_dir():
            shutil.copytree(origin, into, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin, into / origin.name if into.is_dir() else into)
    folder = f"{image.folder}/{target}".removesuffix("/.").removesuffix("/./")
    _in_chroot(Image(image.root), ["chown", "-R", owner, folder])


def _in_chroot(image: Image, command: list[str]) -> None:
    """With the network, as a build has it."""
    inner = f"mount --bind /dev {image.root}/dev && mount -t proc proc {image.root}/proc && exec "
    variables = [f"{name}={value}" for name, value in image.environment.items()]
    user = ["--userspec", image.user] if image.user != "root" else []
    script = f"cd {shlex.quote(image.folder)} && exec {shlex.join(command)}"
    chroot = ["env", "-i", "DEBIAN_FRONTEND=noninteractive", *variables, "chroot", *user, str(image.root)]
    chroot += ["/bin/sh", "-c", script]
    subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", inner + shlex.join(chroot)], check=True)


@dataclass
class Pod:
    """Runs commands of an image as Kubernetes would; each has the same volume."""

    image: Image
    volume: Path

    def start(self, command: list[str], log: Path) -> "subprocess.Popen[bytes]":
        """Without capabilities or network, on a root that cannot be written to."""
        root = str(self.image.root)
        mounts = [
            f"mount --bind {root} {root}",
            f"mount -t proc proc {root}/proc",
            f"mount -t tmpfs -o mode=755 tmpfs {root}/dev",
            *(f"mknod -m 666 {root}/dev/{name} c 1 {minor}" for name, minor in _DEVICES),
            f"mkdir -m 1777 {root}/dev/shm",
            f"ln -s /proc/self/fd {root}/dev/fd",
            f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp",
            f"mkdir -p {root}/etc/headgate",
            f"mount --bind {REPOSITORY}/docker {root}/etc/headgate",
            f"mount --bind {self.volume} {root}/var/lib/headgate",
            f"mount --bind {self._hosts()} {root}/etc/hosts",
            f"mount -o remount,bind,ro {root}",
            "ip link set lo up",
        ]
        drop = ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups", "--no-new-privs"]
        drop += ["--bounding-set=-all", "--inh-caps=-all"]
        variables = [f"{name}={value}" for name, value in self.image.environment.items()]
        run = ["env", "-i", *variables, "HOME=/home/headgate", "chroot", root, *drop, *command]
        script = " && ".join([*mounts, f"exec {shlex.join(run)}"])
        spaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--ipc", "--uts"]
        with log.open("wb") as output:
            return subprocess.Popen([*spaces, "sh", "-c", script], stdout=output, stderr=subprocess.STDOUT)

    def _hosts(self) -> Path:
        """As every engine writes it: a container knows itself by its name."""
        hosts = self.volume.with_name("hosts")
        hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 {os.uname().nodename}\n")
        return hosts

    def inside(self, running: "subprocess.Popen[bytes]", command: str) -> int:
        """Run another command in a running pod, as a health check is; its status."""
        child = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()[0]
        variables = [f"{name}={value}" for name, value in self.image.environment.items()]
        enter = ["nsenter", f"--target={child}", "--mount", "--net", "--pid", f"--root={self.image.root}"]
        return subprocess.run(
            [*enter, "env", "-i", *variables, "/bin/sh", "-c", command], check=False, capture_output=True
        ).returncode


_DEVICES = (("null", 3), ("zero", 5), ("random", 8), ("urandom", 9))


def prove(image: Image, folder: Path) -> None:
    """Each way the image is used; the first that fails ends it."""
    volume = folder / "volume"
    volume.mkdir(exist_ok=True)
    os.chown(volume, USER_ID, USER_ID)
    pod, headgate = Pod(image, volume), image.entrypoint
    _ends_well(pod, ["/bin/sh", "-c", "! touch /opt/x && ! touch /home/headgate/x && touch /tmp/x && id -u"], folder)
    _ends_well(pod, [*headgate, "check", "/etc/headgate/headgate.yaml"], folder)
    _ends_well(
        pod, ["python", "-m", "deploy.java.jars", "spark", "kafka", "bookkeeper", "--cache-dir", _jars(image)], folder
    )
    _ends_well(pod, ["python", "-c", _LEDGER_COPIER], folder)
    _serves(pod, [*headgate, "up"], folder)
    _ends_well(pod, [*headgate, "demo"], folder, _DEMO_SECONDS)


def _jars(image: Image) -> str:
    return image.environment["HEADGATE_JARS_DIR"]


def _ends_well(pod: Pod, command: list[str], folder: Path, seconds: float = 120) -> None:
    log, began = folder / "pod.log", time.monotonic()
    status = pod.start(command, log).wait(seconds)
    what = shlex.join(command).splitlines()[0][:90]
    if status != 0:
        raise SystemExit(f"{what}: status {status}\n{log.read_text(errors='replace')}")
    _said(f"{what}: {time.monotonic() - began:.1f} s; {_last_line(log)}")


def _serves(pod: Pod, command: list[str], folder: Path) -> None:
    """Until it is ready and healthy; then SIGTERM, as Kubernetes stops a pod, must drain it."""
    log, began = folder / "pod.log", time.monotonic()
    running = pod.start(command, log)
    try:
        while '"ready' not in log.read_text(errors="replace"):
            if running.poll() is not None or time.monotonic() - began > _READY_SECONDS:
                raise SystemExit(f"{shlex.join(command)} is not ready\n{log.read_text(errors='replace')}")
            time.sleep(0.5)
        _said(f"{shlex.join(command)}: ready after {time.monotonic() - began:.1f} s")
        if pod.inside(running, pod.image.healthcheck) != 0:
            raise SystemExit(f"the health check fails: {pod.image.healthcheck}")
        _said("the health check is content")
        child = int(Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()[0])
        os.kill(child, signal.SIGTERM)
        status = running.wait(_DRAIN_SECONDS)
        if status != 0:
            raise SystemExit(f"status {status} after SIGTERM\n{log.read_text(errors='replace')}")
        _said(f"drained; {_last_line(log)}")
    finally:
        running.kill()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _said(what: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {what}\n")
    sys.stdout.flush()


def main() -> None:
    """Build, then prove."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the image's root and the volume lie; 3 GB")
    folder = parser.parse_args().folder.absolute()
    missing = [tool for tool in ("debootstrap", "unshare", "setpriv", "nsenter", "ip") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        raise SystemExit(f"this needs root{', and ' + ', '.join(missing) if missing else ''}.")
    prove(build(folder / "root"), folder)


if __name__ == "__main__":
    main()
