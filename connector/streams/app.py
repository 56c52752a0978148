"""A Faust app around `latest`, as its own process, with pages at `/rows/KEYSPACE.TABLE/`.

python -m headrace.connector.streams.app job.yaml --table shop.orders
"""

import sys
from collections.abc import Sequence
from typing import Any

import faust
import msgspec
from faust.web import Request, Response, View

from headrace.connector.streams.arguments import app_of, changes_parser, reader_of, reported, run
from headrace.connector.streams.kit import Consumer
from headrace.connector.streams.latest import LatestRows


def latest_rows(app: faust.App, consumer: Consumer, *tables: str) -> LatestRows:
    """Make *app* keep the newest rows of *tables* and show them; return the rows.

    Raises:
        ConfigError: the envelope is not `cep44` with all that folding needs, or the topics of
            the tables have different numbers of partitions.
        HeadraceError: a topic does not exist, or no broker answers.

    """
    consumer.require_whole_changes()
    rows = LatestRows(consumer.table_beside(app, "rows", *tables))

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


@reported
def main(arguments: Sequence[str]) -> int:
    """Follow topics until the process is asked to stop."""
    given = changes_parser("app", "Keep the newest rows of tables.", "rows").parse_args(arguments)
    reader = reader_of(given)
    consumer = Consumer(reader)
    app = app_of(given, reader.sink)
    latest_rows(app, consumer, *(given.table or [""]))
    run(app)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
