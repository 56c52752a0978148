"""The errors of the change history."""

from headrace.plugins import ConfigError, FatalError, MissingRequirementError, RetriableError


class HistoryFileError(MissingRequirementError):
    """The file of a history cannot be opened, or is not one."""

    code = "history_file"


class HistoryBusyError(RetriableError):
    """Another process kept the file locked, or it cannot be written now."""

    code = "history_busy"


class HistoryMissingError(HistoryFileError):
    """The file does not exist: no worker has opened the sink yet, or it was removed."""

    code = "history_missing"


class FramesMissingError(MissingRequirementError):
    """pyarrow or pandas is not installed."""

    code = "frames_missing"


class HistoryTableError(FatalError):
    """A change of another table was routed to a history, or its row cannot be named."""

    code = "history_table"


class HistorySeedError(MissingRequirementError):
    """A history cannot be seeded now: it is not followed, or does not ask for it."""

    code = "history_seed"


class HistoryTruncatedError(ConfigError):
    """A query begins before the oldest change that is kept: its answer would not be complete."""

    code = "history_truncated"


class ImageNotKeptError(ConfigError):
    """A query asks for images of a time in which the history did not keep them."""

    code = "image_not_kept"


class QueryError(ConfigError):
    """A query is not valid for the history's table."""

    code = "history_query"
