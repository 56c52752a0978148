"""The errors of the registry; the codes are Confluent's."""

from typing import ClassVar


class RegistryError(Exception):
    """Base of all; `code` is in the answer, its first three digits are the HTTP status."""

    code: ClassVar[int] = 50001

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(self.code)[:3])


class SubjectUnknownError(RegistryError):
    """There is no such subject."""

    code = 40401


class VersionUnknownError(RegistryError):
    """The subject has no such version."""

    code = 40402


class SchemaUnknownError(RegistryError):
    """No schema has this id, or the subject does not have this schema."""

    code = 40403


class SubjectDeletedError(RegistryError):
    """The subject was deleted, though not permanently."""

    code = 40404


class SubjectNotDeletedError(RegistryError):
    """A subject is deleted permanently only after it was deleted."""

    code = 40405


class VersionDeletedError(RegistryError):
    """The version was deleted, though not permanently."""

    code = 40406


class VersionNotDeletedError(RegistryError):
    """A version is deleted permanently only after it was deleted."""

    code = 40407


class LevelUnsetError(RegistryError):
    """The subject has no compatibility level of its own."""

    code = 40408


class ModeUnsetError(RegistryError):
    """The subject has no mode of its own."""

    code = 40409


class IncompatibleError(RegistryError):
    """The schema breaks the subject's compatibility level."""

    code = 409


class BadRequestError(RegistryError):
    """The body is not what is expected there."""

    code = 400


class SchemaInvalidError(RegistryError):
    """The text is not an Avro schema."""

    code = 42201


class VersionInvalidError(RegistryError):
    """Versions are numbers from 1, or `latest`."""

    code = 42202


class LevelInvalidError(RegistryError):
    """There is no such compatibility level."""

    code = 42203


class ModeInvalidError(RegistryError):
    """There is no such mode."""

    code = 42204


class NotPermittedError(RegistryError):
    """The subject's mode, or what is registered already, does not permit it."""

    code = 42205


class ReferencedError(RegistryError):
    """Another schema refers to this one."""

    code = 42206


class TooLargeError(RegistryError):
    """The schema is larger than the registry takes."""

    code = 42209
