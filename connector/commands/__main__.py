"""`headrace replay`, and `headrace run --engine spark`, as a program for `spark-submit`."""

import sys

from headrace.connector.commands.cli import main

if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(arguments if "--engine" in arguments else ["replay", *arguments]))
