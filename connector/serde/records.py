"""What codecs have in common: how they are found, and records that do not fit."""

from headrace.plugins import BadRecordError, Codec
from headrace.plugins.discovery import load


class UnfitRecordError(BadRecordError):
    """A record does not fit its schema, or holds what the format cannot express."""

    code = "unfit_record"


def codec(name: str) -> Codec:
    """Return the codec *name*: `avro`, `json`, `none`, or a plugin's.

    Raises:
        ConfigError: there is none of that name.

    """
    made: Codec = load("codecs", name)()
    return made
