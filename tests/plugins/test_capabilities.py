"""What a source offers is asked for in one way, and what it does not offer is a named error."""

import pytest

from headrace.plugins import BulkReading, MicroBatches, NotOfferedError, Relocation, Tables
from headrace.plugins.testing.doubles import MemoryConfig, MemorySource, context
from headrace.sources.files import FileSource, FileSourceConfig


def test_a_source_that_offers_it_is_returned() -> None:
    """The source itself, and its class, are what has the capability."""
    source = FileSource(FileSourceConfig(path="in"), context())

    assert source is Relocation.of(source)
    assert FileSource is Relocation.of_class(FileSource)


@pytest.mark.parametrize(
    ("capability", "message"),
    [
        (BulkReading, "source: MemorySource cannot be read in part: it does not offer BulkReading"),
        (Tables, "tables: MemorySource does not know its tables: it does not offer Tables"),
        (
            Relocation,
            "position: MemorySource can begin at `earliest` only: it does not offer Relocation",
        ),
    ],
)
def test_a_source_that_does_not_offer_it_is_named(
    capability: type[BulkReading | Tables | Relocation], message: str
) -> None:
    """The error says which source cannot do what, and is of the option that asked for it."""
    for ask in (
        lambda: capability.of(MemorySource(MemoryConfig(), context())),
        lambda: capability.of_class(MemorySource),
    ):
        with pytest.raises(NotOfferedError) as caught:
            ask()
        assert "not_offered" == caught.value.code
        assert message == caught.value.message


def test_a_hint_says_what_to_do_instead() -> None:
    """The hint of the capability is that of the error."""
    with pytest.raises(NotOfferedError) as caught:
        MicroBatches.of_class(FileSource)

    assert "`headrace run` without --engine reads every source" == caught.value.hint
