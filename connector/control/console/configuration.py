"""The options of a job, and the origin of each. Secrets are never shown.

A reference to a secret is shown as it is written. A value in its place is not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.connector.control.console.paging import Document
from headrace.connector.control.job_files import job_file
from headrace.connector.control.jobs import job_text
from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.foundation.secrets import is_secret
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import HeadraceError, Option, declared_options, is_reference
from headrace.plugins.config.forms import default_of
from headrace.plugins.discovery import load

NOT_SHOWN: Final = "(not shown)"
VALUE_CHARS_MAX: Final = 200
_USER: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # A user and a password in a URL.


def configuration_of(notes: NoteCopy, job: str) -> Document:
    """Return the file of a job and the options of its sections, or why they are unknown."""
    try:
        path = job_file(notes, job)
        text = job_text(path, job, notes=notes)
        options = [
            *_section("source", text.source, _class("sources", text.source)),
            *_section("sink", text.sink, _class("sinks", text.sink)),
            *_section("runtime", text.runtime, RuntimeConfig),
        ]
    except HeadraceError as error:
        return {"job": job, "file": "", "problem": f"{error.code}: {error.message}", "options": []}
    return {"job": job, "file": str(path), "problem": "", "options": options}


def _class(group: str, given: Mapping[str, Any]) -> type:  # Any: JSON.
    found: type = load(group, str(given.get("plugin"))).config_class
    return found


def _section(section: str, given: Mapping[str, Any], config_class: type) -> Iterator[Document]:
    """Yield the given options, and the defaults of the others."""
    fields = declared_options(config_class)
    declared = {key: found for key, (_, found) in fields.items()}
    for key, value in given.items():
        is_known = key == "plugin" or key in declared or _passes(key, declared)
        hidden = not is_known or is_secret(key, declared)
        shown = _shown(value)
        if hidden and not is_reference(shown):
            shown = NOT_SHOWN
        yield {"section": section, "option": key, "value": shown, "given": True}
    for key, (field, found) in fields.items():
        if key not in given and not found.keys_allowed:
            value = "" if found.secret else default_of(field) or ""
            yield {"section": section, "option": key, "value": value, "given": False}


def _passes(key: str, declared: Mapping[str, Option]) -> bool:
    """Return whether a pattern accepts an option."""
    return any(
        re.fullmatch(each.keys_allowed, key) for each in declared.values() if each.keys_allowed
    )


def _shown(value: object) -> str:
    """Return a value in short; values inside a mapping are not declared, so they may be secrets."""
    if isinstance(value, Mapping):
        return f"{len(value)}: {', '.join(map(str, value))}"[:VALUE_CHARS_MAX]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"{len(value)} entries"
    return _USER.sub("…", str(value))[:VALUE_CHARS_MAX]
