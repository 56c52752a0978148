"""Errors of bulk work, each a class of its own if users should react differently."""

from headrace.plugins import (
    ConfigError,
    FatalError,
    MissingRequirementError,
    Problem,
    RetriableError,
)


class SparkMissingError(MissingRequirementError):
    """pyspark, pyarrow or Java is not installed."""

    code = "spark_missing"


class LakeMissingError(MissingRequirementError):
    """The library of a lake's format is not installed."""

    code = "lake_missing"


class LakeError(FatalError):
    """Files could not be committed to a table of a lake; the shard is not done."""

    code = "lake_failed"


class ShardFailedError(FatalError):
    """Shards of a run failed; the others are done. `headrace replay status` names them."""

    code = "shard_failed"


class FileBrokenError(FatalError):
    """A file of a run cannot be read, or the run did not write it."""

    code = "file_broken"


class DeliveryRefusedError(FatalError):
    """The target did not accept records of a shard, or did not acknowledge them in time."""

    code = "delivery_refused"


class RunBusyError(FatalError):
    """Another process executes this run."""

    code = "run_busy"


class RunHaltedError(FatalError):
    """The process or the run must stop; finished shards of the run stay done."""

    code = "run_halted"


class JobBusyError(FatalError):
    """Another process runs this job: a worker, or Spark."""

    code = "job_busy"
    restartable = True


class JobChangedError(RetriableError):
    """Statements changed the job while its stream ran: the stream restarts."""

    code = "job_changed"


class SplitBusyError(FatalError):
    """The owner of a split to catch up did not release it."""

    code = "split_busy"


class ArchiveGapError(FatalError):
    """Segments to replay are missing, or exist twice."""

    code = "archive_gap"


class LogShortError(RetriableError):
    """A log is shorter than when a micro-batch was planned: the batch is repeated."""

    code = "log_short"


class SinkElsewhereError(FatalError):
    """A task runs on a machine without the sink's positions: nothing was delivered."""

    code = "sink_elsewhere"


class StreamFailedError(FatalError):
    """A micro-batch failed in every attempt; after a restart the job repeats it."""

    code = "stream_failed"


def bad_option(key: str, message: str, hint: str = "") -> ConfigError:
    """Return the error about one option."""
    return ConfigError([Problem(key, message, hint)])
