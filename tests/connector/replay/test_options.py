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


def test_options_that_were_left_out() -> None:
    """None, False and 0 are no empty options."""
    refuse_empty(Namespace(suffix=None, into_live=False, rate=0))
