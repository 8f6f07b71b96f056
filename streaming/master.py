"""What a Spark master's URL implies: where the query runs, and who must be able to connect to whom."""

import ipaddress
import re

_SERVER = r"(?:\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"
_MASTERS = tuple(
    map(
        re.compile,
        (
            r"local(?:\[(?:\*|[1-9][0-9]*)(?:,[1-9][0-9]*)?\])?",
            rf"spark://{_SERVER}(?:,{_SERVER})*",
            r"yarn",
            rf"k8s://(?:https?://)?(?:{_SERVER}|[A-Za-z0-9._-]+)(?:/\S*)?",
        ),
    )
)
_EACH_SERVER = re.compile(r"(?:^|,)\s*(?:[a-z]+://)*(\[[0-9A-Fa-f:]+\]|[^:,/\s]+)")


def checked_master(master: str) -> str:
    """The master, if it is written as Spark wants it.

    Raises:
        ValueError: it is not.
    """
    if not any(pattern.fullmatch(master) for pattern in _MASTERS):
        raise ValueError(
            "is no Spark master: write local[2], spark://host:7077, yarn or k8s://https://host:6443; "
            "several of a standalone cluster as spark://host1:7077,host2:7077"
        )
    return master


def is_local(master: str) -> bool:
    """Whether all of Spark is one process, beside ours."""
    return master.startswith("local")


def is_on_this_machine(master: str) -> bool:
    """Whether no executor can be anywhere else: a standalone master on loopback is reached by nobody else."""
    return is_local(master) or (master.startswith("spark://") and is_loopback(master.removeprefix("spark://")))


def is_loopback(servers: str) -> bool:
    """Whether all of `host:port`, comma separated, are this machine, whoever asks."""
    return all(_is_loopback_host(host.strip("[]")) for host in _EACH_SERVER.findall(servers))


def _is_loopback_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
