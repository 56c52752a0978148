"""Images of rows in changes: the last fields of the envelope `cep44`, for some sources.

An image is null if there was no row. Otherwise its `payload` is the same as for an INSERT of the
whole row; `knownFields` names the columns about which something is known, null for a column that is
deleted or was never written; and `expires` is the expiry of each of these, in seconds.
"""

from collections.abc import Sequence
from typing import Final

from headrace.connector.serde.avro_types import AvroType
from headrace.plugins import Document, RecordSchema

PRE: Final = "pre"
POST: Final = "post"
_OTHER_FIELDS: Final = (
    {"name": "knownFields", "type": {"type": "array", "items": "string"}},
    {"name": "expires", "type": {"type": "array", "items": ["null", "long"]}},
)


def image_type(payload: AvroType) -> Document:
    """Return the type of an image with the columns of *payload*."""
    fields = [{"name": "payload", "type": payload}, *_OTHER_FIELDS]
    return {"type": "record", "name": "Image", "fields": fields}


def images_in(schema: RecordSchema) -> Sequence[tuple[str, int]]:
    """Return the images in changes of *schema*, each with the place of its field."""
    fields = schema.value["fields"]
    return [(f["name"], place) for place, f in enumerate(fields) if f["name"] in (PRE, POST)]
