"""The errors of the sinks that write tables of lakes."""

from headrace.plugins import FatalError, MissingRequirementError, RetriableError


class LakeFileError(MissingRequirementError):
    """The file of positions and staged rows cannot be opened."""

    code = "lake_file"


class LakeBusyError(RetriableError):
    """Another process kept the file locked, or it cannot be written now."""

    code = "lake_busy"


class LakeSchemaError(FatalError):
    """A table of the lake has a column of another type, or a change names an unknown schema."""

    code = "lake_schema"


class LakeUnreachableError(MissingRequirementError):
    """The tables of the lake, or their catalog, cannot be reached."""

    code = "lake_unreachable"
