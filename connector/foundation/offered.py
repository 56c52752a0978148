"""Uses capabilities of a source for splits and positions, with defaults if it has not got them."""

from headrace.connector.foundation.job_file import EARLIEST
from headrace.plugins import Position, Relocation, Source, Split, TokenRange, TokenRanges


def located(
    source: Source, split: Split, position: Position | None, target: str
) -> Position | None:
    """Return *position* moved to *target*; every source supports the target `earliest`.

    Raises:
        NotOfferedError: the source supports no other target.
        ConfigError: the target is not valid for the source; the problem's key is `position`.

    """
    if target == EARLIEST and not isinstance(source, Relocation):
        return None
    return Relocation.of(source).locate(split, position, target)


def check_place(source: type[Source], target: str) -> None:
    """Raise as `located` would if *target* is not valid for the source."""
    if target != EARLIEST or issubclass(source, Relocation):
        Relocation.of_class(source).check_place(target)


def tokens_of(source: Source, split: str) -> TokenRange | None:
    """Return the tokens of a split; None if its splits are not token ranges."""
    return source.token_range(split) if isinstance(source, TokenRanges) else None
