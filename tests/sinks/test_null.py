"""The sink that counts and forgets."""

from headrace.plugins import Encoding, parse_config
from headrace.sinks.null import NullConfig, NullSink
from helpers.jobs.deliveries import Results, context, delivery_of


def test_it_counts_and_settles_at_once() -> None:
    """Every record is delivered before `submit` returns."""
    sink = NullSink(parse_config(NullConfig, {}), context())
    writer = sink.open()
    results = Results()

    writer.submit(delivery_of((b"a", b"12"), (b"b", b"3")), results)

    assert [(range(2), ())] == results.all
    assert 2 == writer.records
    assert writer.drain(0)
    assert sink.encoding() == Encoding(codec="avro")
