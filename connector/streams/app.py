"""The Faust app around `latest`: a process of its own, with its table at `/rows/KEYSPACE.TABLE/`.

python -m headrace.connector.streams.app job.yaml --table shop.orders
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import faust
import msgspec
from faust.web import Request, Response, View

from headrace.connector.streams.changes import ChangeReader
from headrace.connector.streams.kit import RAW, Consumer
from headrace.connector.streams.latest import LatestRows
from headrace.plugins import ConfigError, HeadraceError, Problem

STORES: Final = ("memory", "rocksdb")


def latest_rows(app: faust.App, consumer: Consumer, *tables: str) -> LatestRows:
    """Have *app* keep the newest rows of *tables*, and show them; return them.

    Raises:
        ConfigError: the envelope is not `cep44`, with all that the fold needs, or the topics of
            the tables have different numbers of partitions.
        HeadraceError: a topic does not exist, or no broker answers.

    """
    consumer.require_whole_changes()
    numbers = {table: consumer.partitions(table) for table in tables}
    if len({*numbers.values()}) != 1:
        found = ", ".join(f"{table}: {number}" for table, number in numbers.items())
        hint = "start an app for each"
        raise ConfigError([Problem("--table", f"numbers of partitions differ: {found}", hint)])
    partitions = next(iter(numbers.values()))
    raw: dict[str, Any] = RAW  # Any: of a Faust schema.
    # The store takes serializers from the types, the changelog from the schema.
    schema: Any = faust.Schema(**raw)  # Any: of bytes, which its types do not say.
    table = app.Table(
        "rows", partitions=partitions, schema=schema, key_type=bytes, value_type=bytes
    )
    rows = LatestRows(table)

    @app.agent(consumer.topic(app, *tables))
    async def fold(stream: Any) -> None:  # noqa: ANN401 (Faust's streams are generic)
        async for change in consumer.changes(stream):
            rows.take(change.document, change.schema, change.partition)

    @app.page("/rows/{name}/")
    async def show(view: View, request: Request, name: str) -> Response:
        del request
        content = msgspec.json.encode(list(rows.rows(name)))
        return view.bytes(content, content_type="application/json")

    return rows


def reader_of(given: argparse.Namespace) -> ChangeReader:
    """Return the reader of what the arguments of `connection_parser` name."""
    options = dict(option.partition("=")[::2] for option in given.option)
    for key in ("bootstrap_servers", "topic"):
        if getattr(given, key) is not None:
            options[key.replace("_", ".")] = getattr(given, key)
    if given.job is None:
        return ChangeReader.of(options, state=given.state, source=given.source)
    if options or given.state or given.source:
        hint = "leave the file out, or --option, --bootstrap-servers, --topic, --state and --source"
        raise ConfigError([Problem("job", "its options are in the job file", hint)])
    return ChangeReader.of_job(given.job)


def connection_parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser of what every app of this package needs."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument(
        "job", nargs="?", type=Path, help="the job file, whose sink writes the topics"
    )
    parser.add_argument("--bootstrap-servers", help="without a job file: the brokers")
    parser.add_argument("--topic", help="the topic, or the sink's pattern of topics")
    parser.add_argument("--state", type=Path, help="the job's state file, which has the schemas")
    parser.add_argument("--source", help="the source's plugin, for flat and debezium from --state")
    parser.add_argument(
        *("-o", "--option"),
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the job's sink, such as schema.store=registry; may be repeated",
    )
    parser.add_argument(
        "--table",
        action="append",
        metavar="KEYSPACE.TABLE",
        help="a table whose topic is followed; may be repeated; needed if the topic is a pattern",
    )
    parser.add_argument("--folder", type=Path, default=Path("rows"), help="Faust's own files")
    parser.add_argument("--port", type=int, default=6066, help="the port of its pages, on loopback")
    return parser


def run(app: faust.App) -> None:
    """Run *app* until SIGTERM or SIGINT; exit with 1 if it fails."""
    faust.Worker(app, loglevel="WARN").execute_from_commandline()


def main(arguments: Sequence[str]) -> int:
    """Follow topics until it is asked to stop."""
    parser = connection_parser("headrace.connector.streams.app", "Keep the newest rows of tables.")
    parser.add_argument(
        "--name", default="headrace-rows", help="the name of the app and its consumer group"
    )
    parser.add_argument(
        "--store", choices=STORES, default=STORES[0], help="what keeps the rows of this process"
    )
    given = parser.parse_args(arguments)
    try:
        consumer = Consumer(reader_of(given))
        app = consumer.app(
            given.name,
            store=f"{given.store}://",
            datadir=str(given.folder),
            web_port=given.port,
        )
        latest_rows(app, consumer, *(given.table or [""]))
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    run(app)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
