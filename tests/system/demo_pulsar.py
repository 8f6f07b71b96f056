"""Starts the demo of Pulsar, `make demo-pulsar`: in a mount namespace of its own, before any import starts threads."""

import sys

from deploy.demo.volume import enter_private_mounts
from policies.units import UserError


def main() -> int:
    """Run the demo; return the exit status."""
    mounts = enter_private_mounts()
    from deploy.demo.run import DemoFailedError
    from tests.system.pulsar_demo import run_pulsar_demo

    try:
        return run_pulsar_demo(mounts=mounts)
    except (UserError, DemoFailedError, AssertionError) as error:  # the last is of a server that does not start
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
