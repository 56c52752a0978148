"""Which messages can be compared with logs, told from a sink's options before anything is read.

Of other messages no change is known by its name, and all of them would be called missing. Pure.
"""

from collections.abc import Iterator
from typing import Final

from headrace.plugins import ConfigError, Encoding, Problem, Sink, SinkOptions

# The formats of values, and those of keys beside them with which records keep their names.
_KEY_FORMATS: Final = {"avro": ("avro",), "json": ("json", "avro")}


def check_comparable(sink: Sink) -> None:
    """Refuse a sink whose messages do not tell what names a change.

    Raises:
        ConfigError: with all options that are in the way.

    """
    problems = list(_problems(sink.encoding()))
    options = sink.config if hasattr(sink, "config") else None
    if isinstance(options, SinkOptions) and options.transforms:
        found = ", ".join(options.transforms)
        hint = "what transforms make of a change cannot be compared with logs"
        problems.append(Problem("sink.transforms", f"expected none, found {found}", hint))
    if problems:
        raise ConfigError(problems)


def _problems(encoding: Encoding) -> Iterator[Problem]:
    if encoding.envelope not in ("", "cep44"):
        hint = "only messages in the envelope cep44 name their changes"
        yield Problem("sink.envelope", f"expected cep44, found {encoding.envelope}", hint)
    keys = _KEY_FORMATS.get(encoding.codec)
    if keys is None:
        hint = "messages in other formats cannot be read back"
        yield Problem("sink.format", f"expected avro or json, found {encoding.codec}", hint)
    elif encoding.key_codec and encoding.key_codec not in keys:
        message = f"expected {' or '.join(keys)}, found {encoding.key_codec}"
        hint = f"messages whose values are {encoding.codec} cannot be compared with such keys"
        yield Problem("sink.key.format", message, hint)
