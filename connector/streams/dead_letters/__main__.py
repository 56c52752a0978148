"""The command to watch dead letters.

python -m headrace.connector.streams.dead_letters job.yaml    # with a page at `/dead-letters/`
"""

import argparse
import sys
from collections.abc import Sequence

from headrace.connector.streams.arguments import app_of, app_parser, options_of, reported, run
from headrace.connector.streams.dead_letters.app import WINDOW_SECONDS, watch
from headrace.connector.streams.dead_letters.letters import dead_letter_sink
from headrace.plugins.config.sink_options import DEAD_LETTERS_KEY


def watch_parser() -> argparse.ArgumentParser:
    """Return the parser of this module's arguments."""
    parser = app_parser("dead_letters", "Watch the dead letters of a job.", "dead-letters")
    parser.add_argument(
        "--window",
        type=int,
        default=WINDOW_SECONDS,
        metavar="SECONDS",
        help="count dead letters by this",
    )
    parser.add_argument(
        "--max", type=int, metavar="N", help="exit with 4 at more than N of them within a window"
    )
    return parser


@reported
def main(arguments: Sequence[str]) -> int:
    """Watch until the process is asked to stop, or there are too many."""
    given = watch_parser().parse_args(arguments)
    options = dict(options_of(given))
    if given.job is None and given.topic is not None:
        options[DEAD_LETTERS_KEY] = given.topic
    sink = dead_letter_sink(options)
    app = app_of(given, sink)
    watch(app, sink, window_seconds=given.window, count_max=given.max)
    run(app)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
