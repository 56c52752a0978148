"""What the commands of bulk work take. Imports nothing that is an extra: help needs none."""

import argparse
from pathlib import Path
from typing import Final

from headrace.connector.replay.options import CHUNK_BYTES, LAG_BYTES, LAKE_KINDS

CATCH_UP: Final = "catch-up"
INDEX: Final = "index"
INITIAL, ALWAYS = "initial", "always"
SHARDS: Final = 64  # Of a backfill.
BUCKETS: Final = 1_024
GRACE_SECONDS: Final = 60
TABLE_SHARDS: Final = 64


def replay_parser() -> argparse.ArgumentParser:
    """Return the parser of `headrace replay`."""
    parser = argparse.ArgumentParser(
        prog="headrace replay", description="Derive records anew from segments, in bulk."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    plan = verbs.add_parser("plan", help="say what would be done, and keep it as a run")
    plan.add_argument("job", type=Path, metavar="JOB.yaml")
    _add_selection(plan)
    plan.add_argument("--shards", type=int, metavar="N", help="cut the work into N")
    plan.add_argument("--to-folder", metavar="DIR", help="write Parquet files here")
    plan.add_argument("--format", choices=("avro", "json"), help="of those files (avro)")
    _add_lake(plan)
    plan.add_argument("--into-live", action="store_true", help="into the topics of the job itself")
    plan.add_argument("--suffix", help="of the side topics (.replay)")
    plan.add_argument("--rate", type=float, default=0, help="changes per second, of all tasks")
    plan.add_argument("--accept-gaps", action="store_true", help="also where segments are missing")
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")
    for verb, words in (("run", "execute a plan, or what is left of it"), ("verify", "compare")):
        each = verbs.add_parser(verb, help=words)
        each.add_argument("job", type=Path, metavar="JOB.yaml")
        each.add_argument("run", metavar="RUN")
        each.add_argument("--master", help="of Spark; by default local[*]; `none`: without Spark")
        if verb == "run":
            _add_metrics(each)
    index = verbs.add_parser(INDEX, help="find what lets plans and runs pass over parts of logs")
    index.add_argument("job", type=Path, metavar="JOB.yaml")
    index.add_argument("--master", help="of Spark; by default local[*]; `none`: without Spark")
    status = verbs.add_parser("status", help="show runs, or the shards of one")
    status.add_argument("job", type=Path, metavar="JOB.yaml")
    status.add_argument("run", metavar="RUN", nargs="?")
    status.add_argument("--json", action="store_true", help="as JSON")
    _add_catch_up(verbs.add_parser(CATCH_UP, help="read in bulk what lags, and give it back"))
    return parser


def backfill_parser() -> argparse.ArgumentParser:
    """Return the parser of `headrace backfill`."""
    parser = argparse.ArgumentParser(
        prog="headrace backfill",
        description="Send what is in tables now, with its write times, into the job's sink.",
        epilog="One that was interrupted goes on when it is given again.",
    )
    parser.add_argument("job", type=Path, metavar="JOB.yaml")
    parser.add_argument("tables", nargs="+", metavar="KEYSPACE.TABLE")
    modes = "initial: what is left of the last run, if anything; always: all of it, anew"
    parser.add_argument("--mode", choices=(INITIAL, ALWAYS), default=INITIAL, help=modes)
    parser.add_argument("--plan", action="store_true", help="only say what would be done")
    parser.add_argument("--shards", type=int, default=SHARDS, help="ranges of tokens (64)")
    parser.add_argument("--token-range", metavar="START:END", help="without START, with END")
    parser.add_argument("--rate", type=float, default=0, help="changes per second, of all tasks")
    parser.add_argument("--to-folder", metavar="DIR", help="Parquet files instead")
    _add_lake(parser)
    parser.add_argument("--suffix", help="of the topics, if not the live ones")
    parser.add_argument("--master", help="of Spark; by default local[*]; `none`: without Spark")
    _add_metrics(parser)
    return parser


def reconcile_parser() -> argparse.ArgumentParser:
    """Return the parser of `headrace reconcile`."""
    parser = argparse.ArgumentParser(
        prog="headrace reconcile",
        description="Compare what the logs agree on with the topic, and what that folds to with "
        "the tables; exit 4 if they differ.",
    )
    parser.add_argument("job", type=Path, metavar="JOB.yaml")
    _add_selection(parser)
    parser.add_argument("--buckets", type=int, default=BUCKETS, help="sums of each table (1024)")
    parser.add_argument(
        "--grace", type=int, default=GRACE_SECONDS, metavar="SECONDS", help="of now, left out (60)"
    )
    parser.add_argument("--no-table", action="store_true", help="compare logs and topic only")
    parser.add_argument(
        "--table-shards", type=int, default=TABLE_SHARDS, metavar="N", help="ranges of tokens (64)"
    )
    parser.add_argument("--report", type=Path, metavar="DIR", help="where the report goes")
    parser.add_argument("--plain-keys", action="store_true", help="keys as they are, not hashed")
    parser.add_argument("--repair", action="store_true", help="plan a run into the live topic")
    parser.add_argument("--master", help="of Spark; by default local[*]; `none`: without Spark")
    return parser


def _add_catch_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=Path, metavar="JOB.yaml")
    parser.add_argument("--split", metavar="NAME,…", help="these, however they lag")
    parser.add_argument(
        "--lag-bytes",
        type=int,
        default=LAG_BYTES,
        metavar="N",
        help="without --split: those that have more to read than so much (1 GiB)",
    )
    parser.add_argument("--until", metavar="POSITION", help="up to there; latest")
    parser.add_argument(
        "--chunk-bytes",
        type=int,
        default=CHUNK_BYTES,
        metavar="N",
        help="commit when about so much of all logs was read (128 MiB)",
    )
    parser.add_argument("--watch", action="store_true", help="look again and again, until SIGTERM")
    parser.add_argument("--plan", action="store_true", help="only say which splits lag")
    parser.add_argument("--master", help="of Spark; by default local[*]; `none`: without Spark")
    _add_metrics(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tables", metavar="KS.TABLE,…", help="only these")
    parser.add_argument("--operations", metavar="NAME,…", help="only these")
    parser.add_argument("--from", dest="since", metavar="TIME", help="written at or after (UTC)")
    parser.add_argument("--to", dest="before", metavar="TIME", help="written before (UTC)")
    parser.add_argument("--after", metavar="POSITION", help="logged after")
    parser.add_argument("--until", metavar="POSITION", help="logged up to")
    parser.add_argument("--token-range", metavar="START:END", help="without START, with END")
    parser.add_argument("--keys-file", type=Path, metavar="PATH", help="a key per line, as JSON")


def _add_lake(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", choices=sorted(LAKE_KINDS), help="tables in that folder")
    parser.add_argument("--catalog", metavar="NAME", help="of pyiceberg's, for iceberg")


def _add_metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics there meanwhile")
    parser.add_argument(
        "--metrics-file", type=Path, metavar="PATH", help="write them there at each step"
    )
