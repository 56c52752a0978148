"""What the framework does with splits and positions where a source offers a capability or not."""

from headrace.connector.foundation.job_file import EARLIEST
from headrace.plugins import Position, Relocation, Source, Split, TokenRange, TokenRanges


def located(
    source: Source, split: Split, position: Position | None, target: str
) -> Position | None:
    """Return *position* moved to *target*; every source has the place `earliest`.

    Raises:
        NotOfferedError: the source has no other place than that.
        ConfigError: the place is not one of the source; the problem's key is `position`.

    """
    if target == EARLIEST and not isinstance(source, Relocation):
        return None
    return Relocation.of(source).locate(split, position, target)


def check_place(source: type[Source], target: str) -> None:
    """Refuse what can be no *target* of `located`. Raises as that does."""
    if target != EARLIEST or issubclass(source, Relocation):
        Relocation.of_class(source).check_place(target)


def tokens_of(source: Source, split: str) -> TokenRange | None:
    """Return the tokens of a split; None where the splits are not ranges of tokens."""
    return source.token_range(split) if isinstance(source, TokenRanges) else None
