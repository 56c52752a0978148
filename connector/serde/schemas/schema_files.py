"""The schema store `file`: a folder with a file for each schema of each subject."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.plugins import Published, RecordSchema, RetriableError, SchemaStore, option


class SchemaFolderError(RetriableError):
    """A schema's file cannot be written or read."""

    code = "schema_folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFolderConfig:
    """Options of the schema store `file`, each after `schema.store.`."""

    path: str = option("The folder; created if it does not exist.", writes=True)


class FileSchemaStore(SchemaStore):
    """Writes `<subject>-<schema id>.avsc`; each file appears complete or not at all."""

    config_class = SchemaFolderConfig
    config: SchemaFolderConfig
    numbered = False

    def publish(self, subject: str, text: str, schema: RecordSchema) -> Published:
        """Write the schema's file."""
        folder = Path(self.config.path)
        name = f"{re.sub(r'[^A-Za-z0-9._-]', '_', subject)}-{schema.schema_id.hex()}.avsc"
        half = folder / f".{name}.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            half.write_text(text + "\n", encoding="utf-8")
            half.replace(folder / name)
        except OSError as error:
            raise SchemaFolderError(str(error), place=str(folder)) from error
        return Published()

    def find(self, schema_id: bytes, number: Published) -> Mapping[str, str]:
        """Return the contents of the schema's files."""
        del number
        end = f"-{schema_id.hex()}.avsc"
        folder = Path(self.config.path)
        try:
            return {
                path.name.removesuffix(end): path.read_text(encoding="utf-8")
                for path in sorted(folder.iterdir())
                if path.name.endswith(end) and not path.name.startswith(".")
            }
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaFolderError(str(error), place=str(folder)) from error
