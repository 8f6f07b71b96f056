"""The script that spark-submit runs: it calls the `headgate` command.

It has a folder of its own, because Python puts a script's folder first on the import path.
"""

from deploy.cli import main

if __name__ == "__main__":
    main()
