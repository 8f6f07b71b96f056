"""What spark-submit is given to run: the `headgate` command.

Alone in its folder, because Python looks there first for every module.
"""

from deploy.cli import main

if __name__ == "__main__":
    main()
