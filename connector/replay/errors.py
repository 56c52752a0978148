"""What can go wrong with bulk work, by what its user should do about it."""

from headrace.plugins import (
    ConfigError,
    FatalError,
    MissingRequirementError,
    Problem,
    RetriableError,
)


def install_hint(extra: str) -> str:
    """Return how an extra of headrace is installed, which is on no package index."""
    return (
        f"in a clone: pip install -e '.[{extra}]'; "
        f"from a wheel: pip install 'headrace-….whl[{extra}]'"
    )


class SparkMissingError(MissingRequirementError):
    """pyspark or pyarrow is not installed, or there is no Java for it."""

    code = "spark_missing"


class LakeMissingError(MissingRequirementError):
    """The library of a lake's format is not installed."""

    code = "lake_missing"


class LakeError(FatalError):
    """Files could not be made part of a table of a lake; the shard is not done."""

    code = "lake_failed"


class ShardFailedError(FatalError):
    """Shards of a run failed; the others are done. `headrace replay status` names them."""

    code = "shard_failed"


class FileBrokenError(FatalError):
    """A file of a run cannot be read, or is not what the run wrote."""

    code = "file_broken"


class DeliveryRefusedError(FatalError):
    """The target did not take what a shard gave it, or did not say so in time."""

    code = "delivery_refused"


class RunBusyError(FatalError):
    """Another process executes this run."""

    code = "run_busy"


class SplitBusyError(FatalError):
    """A split that is to be caught up was not given back by who has it."""

    code = "split_busy"


class ArchiveGapError(FatalError):
    """Segments are missing from what is to be replayed, or are there twice."""

    code = "archive_gap"


class LogShortError(RetriableError):
    """A log shows less than when a micro-batch was planned: the batch is repeated."""

    code = "log_short"


class StreamFailedError(FatalError):
    """A micro-batch failed in every try; begun again, the job repeats it."""

    code = "stream_failed"


def bad_option(key: str, message: str, hint: str = "") -> ConfigError:
    """Return the error about one option."""
    return ConfigError([Problem(key, message, hint)])
