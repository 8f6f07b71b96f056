"""Texts of the demo about itself: how its disk is limited, and what to try next."""

from textwrap import indent

from deploy.demo.volume import DemoVolume
from policies.units import human_bytes


def how_it_is_limited(volume: DemoVolume) -> str:
    """What the disk is that fills up."""
    size = human_bytes(volume.total_bytes)
    if volume.is_disk:
        return f"a disk of {size} in memory (tmpfs), mounted for this process alone"
    return (
        f"this system lets us mount no disk, so a folder stands for one of {size}: its files are counted, and the rest "
        "is what is free. Nothing but the demo's own limits keeps it from growing."
    )


FIRST_SETTINGS = """\
kafka: {bootstrap_servers: "loop-1:9092"}  # Headgate's own topics
clusters:
  payments: {kafka: {bootstrap_servers: "kafka-1:9092"}}
policies:
  throttle:
    mode: shadow
    soft: {available_ratio_below: 0.15}
    hard: {available_ratio_below: 0.05}
"""

NEXT = f"""
What you saw is all there is to it: Headgate read how full the log dir is, decided one factor for the cluster, \
said why, and set Kafka's own client quota. No plugin was in the broker.

Next:
  headgate up            the same loop on a Kafka it starts, watching your disks
  headgate check FILE    whether settings for your own clusters are good
  headgate run -s FILE   the loop on your clusters
  headgate status        what is in force; `headgate explain SUBJECT`: why

A first FILE, which decides and sets nothing yet (shadow):

{indent(FIRST_SETTINGS, "  ")}"""
