"""`headrace replay` as a program that `spark-submit` takes."""

import sys

from headrace.connector.cli import main

if __name__ == "__main__":
    sys.exit(main(["replay", *sys.argv[1:]]))
