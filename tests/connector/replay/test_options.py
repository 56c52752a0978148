"""Options that say nothing, and options that contradict others."""

from argparse import Namespace

import pytest

from headrace.connector.replay.options import refuse_empty
from headrace.plugins import ConfigError


@pytest.mark.parametrize(
    ("name", "flag"),
    [("suffix", "--suffix"), ("to_folder", "--to-folder"), ("since", "--from"), ("before", "--to")],
)
def test_an_empty_option_is_named(name: str, flag: str) -> None:
    """What is refused is told as it was typed."""
    with pytest.raises(ConfigError, match=f"{flag}: expected a value, found nothing"):
        refuse_empty(Namespace(job="j", **{name: ""}))


@pytest.mark.parametrize(("suffix", "is_empty"), [(None, False), ("", True)])
def test_options_that_were_left_out(suffix: str | None, *, is_empty: bool) -> None:
    """None, False and 0 are no empty options: beside them only the empty one is refused."""
    given = Namespace(suffix=suffix, into_live=False, rate=0)
    found = ""
    try:
        refuse_empty(given)
    except ConfigError as error:
        found = str(error)

    assert is_empty is ("--suffix: expected a value" in found)
    assert is_empty or not found
