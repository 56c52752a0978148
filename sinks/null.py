"""A sink that counts and drops records: for benchmarks of everything before the sink."""

from dataclasses import dataclass

from headrace.plugins import (
    CheckResult,
    Context,
    Delivery,
    Encoding,
    Finding,
    Settle,
    Sink,
    SinkOptions,
    Writer,
    option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NullConfig(SinkOptions):
    """Options of the null sink."""

    format: str = option(
        "The bytes that are encoded and discarded: avro, json, or none.",
        default="avro",
        choices=("avro", "json", "none"),
    )


class NullWriter(Writer):
    """Counts records, and settles at once."""

    def __init__(self) -> None:
        """Start at zero."""
        self.records = 0

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Count *delivery* and settle it as delivered."""
        count = len(delivery.encoded)
        self.records += count
        settle(range(count))

    def drain(self, deadline_ms: int) -> bool:  # noqa: ARG002 (everything is settled)
        """Return True."""
        return True


class NullSink(Sink):
    """`null://`: every record is encoded, counted and dropped."""

    schemes = ("null",)
    config_class = NullConfig

    def __init__(self, config: NullConfig, context: Context) -> None:  # noqa: ARG002 (needs nothing)
        """Keep the configuration."""
        self._config = config

    def encoding(self) -> Encoding:
        """Return the encoding of the option `format`."""
        return Encoding(codec=self._config.format)

    def check(self) -> list[Finding]:
        """Return a passed check: nothing can fail."""
        return [Finding("connection", CheckResult.PASSED, "all records are dropped")]

    def open(self) -> NullWriter:
        """Return a writer with a count of 0."""
        return NullWriter()

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> dict[str, str]:  # noqa: ARG003 (null:// is all)
        """Return no options: the text between `null://` and `?` has no meaning."""
        return {}
