"""The dashboard for Grafana, compared with Grafana's own schema of dashboards."""

import json
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

from helpers.settings.filled import filled
from helpers.settings.native_modules import ROOT

Json = Any  # What a document has.
COLUMNS = 24  # Of a dashboard.
DOCUMENT: Json = json.loads((ROOT / "docker" / "grafana" / "headrace.json").read_text())
PANELS: list[Json] = DOCUMENT["panels"]


def as_read(document: Json) -> Json:
    """Return what of a document is left once Grafana's types have read and written it."""
    plugins.register_default_plugins()
    made: Json = json.loads(JSONEncoder().encode(Dashboard.from_json(document)))
    return made


def lost(given: Json, made: Json, place: str = "dashboard") -> Iterator[str]:
    """Yield the places of what is in *given* and not in *made*."""
    if isinstance(given, dict) and isinstance(made, dict):
        for name, value in given.items():
            yield from lost(value, made.get(name), f"{place}.{name}")
    elif isinstance(given, list) and isinstance(made, list) and len(given) == len(made):
        for number, (one, other) in enumerate(zip(given, made, strict=True)):
            yield from lost(one, other, f"{place}[{number}]")
    elif given != made:
        yield place


def test_the_schema_has_all_of_it() -> None:
    """Grafana's types know each field, also those of its panels and queries for Prometheus."""
    assert [] == list(lost(DOCUMENT, as_read(DOCUMENT)))


def test_what_the_schema_does_not_have_is_found() -> None:
    """A field with a mistake in its name, of a panel or a query, is not known."""
    document = json.loads(json.dumps(DOCUMENT))
    document["panels"][0]["gridpos"] = document["panels"][0].pop("gridPos")
    document["panels"][1]["targets"][0]["legend"] = "x"

    found = list(lost(document, as_read(document)))
    assert ["dashboard.panels[0].gridpos", "dashboard.panels[1].targets[0].legend"] == found


def test_units_are_known() -> None:
    """Each unit is one of Grafana's; it would show another one as it is written."""
    known = {value for value in vars(units).values() if isinstance(value, str)}
    for panel in filled(PANELS):
        assert panel["fieldConfig"]["defaults"]["unit"] in known


def test_panels_fit() -> None:
    """Panels have numbers of their own, lie beside each other, and name a query's data source."""
    (source,) = [v["name"] for v in DOCUMENT["templating"]["list"] if v["type"] == "datasource"]
    assert len(PANELS) == len({panel["id"] for panel in PANELS})
    assert {f"${{{source}}}"} == {panel["datasource"]["uid"] for panel in PANELS}
    places = [panel["gridPos"] for panel in PANELS]
    assert all(0 <= p["x"] < p["x"] + p["w"] <= COLUMNS for p in filled(places))
    for one, other in filled(list(combinations(places, 2))):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
