"""The errors of the change history."""

from headrace.plugins import ConfigError, FatalError, MissingRequirementError, RetriableError


class HistoryFileError(MissingRequirementError):
    """The file of a history cannot be opened, or is not one."""

    code = "history_file"


class HistoryBusyError(RetriableError):
    """Another process held the lock on the file, or it cannot be written now."""

    code = "history_busy"


class HistoryMissingError(HistoryFileError):
    """The file does not exist: the sink was not opened yet, or the file was removed."""

    code = "history_missing"


class FramesMissingError(MissingRequirementError):
    """pyarrow or pandas is not installed."""

    code = "frames_missing"


class HistoryTableError(FatalError):
    """A change of another table was routed to a history, or its row has no name."""

    code = "history_table"


class HistorySeedError(MissingRequirementError):
    """A history cannot be seeded now: its job has no positions yet, or it stores no images."""

    code = "history_seed"


class HistoryTruncatedError(ConfigError):
    """A query begins before the oldest stored change, so its answer would be incomplete."""

    code = "history_truncated"


class ImageNotKeptError(ConfigError):
    """A query asks for images of a time when the history did not store them."""

    code = "image_not_kept"


class QueryError(ConfigError):
    """A query is not valid for the history's table."""

    code = "history_query"
