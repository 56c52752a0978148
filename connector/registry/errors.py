"""The errors of the registry; the codes are Confluent's."""

from enum import IntEnum


class Code(IntEnum):
    """The code of a refused request; its first three digits are the HTTP status."""

    BAD_REQUEST = 400
    INCOMPATIBLE = 409
    SUBJECT_UNKNOWN = 40401
    VERSION_UNKNOWN = 40402
    SCHEMA_UNKNOWN = 40403
    """No schema has this id, or the subject does not have this schema."""
    SUBJECT_DELETED = 40404
    SUBJECT_NOT_DELETED = 40405
    """A subject is deleted permanently only after it was deleted; so is a version."""
    VERSION_DELETED = 40406
    VERSION_NOT_DELETED = 40407
    LEVEL_UNSET = 40408
    MODE_UNSET = 40409
    SCHEMA_INVALID = 42201
    VERSION_INVALID = 42202
    LEVEL_INVALID = 42203
    MODE_INVALID = 42204
    NOT_PERMITTED = 42205
    """The subject's mode, or what is registered already, does not permit it."""
    REFERENCED = 42206
    TOO_LARGE = 42209


class RegistryError(Exception):
    """The registry refuses a request."""

    def __init__(self, code: Code, message: str) -> None:
        """*message* is the one of the response."""
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(self.code.value)[:3])
