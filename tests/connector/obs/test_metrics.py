"""`/metrics`: what a running job tells, where it is served, and for how long."""

import json
import re
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from headrace.connector.foundation.states import Observed
from headrace.connector.obs.metrics import Metrics, MetricsAddressError, merged, metrics_address
from headrace.plugins import ConfigError
from headrace.plugins.metrics import (
    Kind,
    Measure,
    Timing,
    counter,
    encoded,
    exposition,
    gauge,
    of_the_job,
)
from headrace.plugins.stores.contract import TableCounts
from headrace.sources.cassandra.agent.metrics import agent_measures
from headrace.sources.cassandra.retention.figures import HoldFigures
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from helpers.jobs.children import until
from helpers.recordings.corpora import recording
from helpers.servers.scraped import asked, one, running, samples
from helpers.settings.native_modules import ROOT

PER_SPLIT = {"runtime": {"metrics.detail": "split"}}
GRAFANA = ROOT / "docker" / "grafana" / "headrace.json"
PANELS = json.loads(GRAFANA.read_text())["panels"]
RULES = ROOT / "docker" / "prometheus" / "headrace.rules.yaml"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the job file of a recorded ring of three nodes."""
    monkeypatch.chdir(tmp_path)
    folder = recording("5.0-ring")
    nodes = {path.name: str(path) for path in sorted((folder / "segments").iterdir())}
    source = {
        "plugin": "cassandra",
        "nodes": nodes,
        "schema": str(folder / "schema.cql"),
        "splits": 2,
    }
    sink = {"plugin": "null", "format": "avro"}
    document = {"job": "ring", "state": "state.db", "source": source, "sink": sink}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    return tmp_path / "job.yaml"


def delivered(port: int) -> float:
    """Return how many changes were delivered."""
    return one(asked(port), "headrace_changes_total", fate="delivered")


def test_o07_metrics_come_with_a_run_and_go_with_it(job: Path) -> None:
    """O07: measures exist while a job runs, books continue, the rest starts over.

    Nothing stays registered in the process.
    """
    changes = "headrace_changes_total"
    before = list(REGISTRY.collect())
    with running(job) as metrics:
        until(lambda: delivered(metrics.port) > 0, "nothing was delivered")
        until(lambda: one(asked(metrics.port), "headrace_backlog_bytes") == 0, "it lags")
        assert 0 == one(asked(metrics.port), "headrace_catch_up_seconds")
        first = asked(metrics.port)
    with running(job) as again:
        count = one(first, changes)
        until(lambda: count == one(asked(again.port), changes), "the books are gone")
        second = asked(again.port)

    assert one(first, "headrace_publish_seconds_count") > 0
    assert 0 == one(second, "headrace_publish_seconds_count")
    assert {"ring"} == {labels["job"] for each in first.values() for labels, _ in each}
    with pytest.raises(OSError, match="refused"):
        asked(metrics.port)
    assert [m.name for m in before] == [m.name for m in REGISTRY.collect()]


def test_the_books_are_reported(job: Path) -> None:
    """The measures are the books: entries are read once for each log, changes are cut once."""
    with running(job) as metrics:
        until(lambda: delivered(metrics.port) > 0, "nothing was delivered")
        found = asked(metrics.port)

    entries = "headrace_entries_total"
    fates = ("first", "counted", "surplus", "repeat", "damaged")
    for node in ("node1", "node2", "node3"):
        read = one(found, entries, node=node, fate="read")
        assert 0 < read == sum(one(found, entries, node=node, fate=fate) for fate in fates)
        assert one(found, "headrace_log_read_bytes_total", node=node) > 0
        assert one(found, "headrace_cdc_raw_bytes", node=node) > 0
        assert one(found, "headrace_cdc_raw_free_bytes", node=node) > 0
    assert 0 == one(found, "headrace_books_differ")
    changes = "headrace_changes_total"
    assert one(found, changes, fate="cut") == one(found, changes, fate="delivered")
    assert 2 == one(found, "headrace_split_state", state="RUNNING")


def test_detail(job: Path) -> None:
    """By default a job has no series of its splits; `metrics.detail: split` has them, as many each.

    Both count the same.
    """
    with running(job) as metrics:
        until(lambda: delivered(metrics.port) > 0, "nothing was delivered")
        of_job = asked(metrics.port)
    job.write_text(yaml.safe_dump(yaml.safe_load(job.read_text()) | PER_SPLIT))
    with running(job) as metrics:
        until(lambda: delivered(metrics.port) > 0, "the books are gone")
        of_splits = asked(metrics.port)

    assert not any("split" in labels for each in of_job.values() for labels, _ in each)
    assert 2 == len(of_splits["headrace_split_token"])
    counters = ("headrace_changes_total", "headrace_entries_total", "headrace_mutations_total")
    for name in counters:
        assert 2 * len(of_job[name]) >= len(of_splits[name]) > len(of_job[name])
        for labels, value in of_job[name]:
            assert value == one(of_splits, name, **labels)


def test_a_number_of_the_job() -> None:
    """Splits count together, the job is as late as the latest of them, and has no token."""
    places = ((1, "1", "a"), (3, "2", "a"), (5, "2", "b"))
    own = [({"split": split, "node": node}, value) for value, split, node in places]
    timing = Timing()
    measures = [
        counter("c_total", "Counted.", own),
        gauge("late", "Late.", own, max),
        gauge("token", "One.", own, None),
        Measure("t_seconds", "It took.", Kind.HISTOGRAM, [({"split": "1"}, timing)]),
    ]
    measures.append(gauge("g", "Is.", [({}, 7)]))
    found = {each.name: each.samples for each in of_the_job(measures)}

    assert {
        "c_total": [({"node": "a"}, 4), ({"node": "b"}, 5)],
        "late": [({"node": "a"}, 3), ({"node": "b"}, 5)],
        "token": [],
        "t_seconds": [({"split": "1"}, timing)],
        "g": [({}, 7)],
    } == found


def test_what_never_happened_has_no_series() -> None:
    """A counter with labels is there once it counted; one without labels, and a gauge, at 0 too."""
    measures = [
        counter("a_total", "A.", [({"x": "1"}, 0), ({"x": "2"}, 1)]),
        counter("b_total", "B.", [({}, 0)]),
        gauge("c", "C.", [({"x": "1"}, 0)]),
    ]
    found = samples(exposition(measures, job="j").decode())

    assert [({"job": "j", "x": "2"}, 1)] == found["a_total"]
    assert [({"job": "j"}, 0)] == found["b_total"]
    assert [({"job": "j", "x": "1"}, 0)] == found["c"]


def test_the_alerts_are_about_measures_that_exist(job: Path) -> None:
    """Every name in the rules and the dashboard is reported by a job or an agent.

    All of theirs is documented.
    """
    with running(job) as metrics:
        until(lambda: delivered(metrics.port) > 0, "nothing was delivered")
        found = asked(metrics.port)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
            families = {f.name for f in text_string_to_metric_families(answer.read().decode())}
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    queries = [rule["expr"] for rule in group["rules"]]
    queries += [t["expr"] for panel in PANELS for t in panel["targets"]]
    names = {name for query in queries for name in re.findall(r"headrace_\w+", query)}
    documented = set(re.findall(r"`(headrace_\w+)`", (ROOT / "docs" / "metrics.md").read_text()))

    assert 12 <= len(group["rules"])
    figures = HoldFigures(1, 1, 1, 1, 1.0, full=False)
    of_agent = {measure.name for measure in agent_measures(figures, 1, {200: 1})}
    known = {*of_agent, *found, *families, *(f"{name}_total" for name in families)}
    assert set() == names - known
    asked_for = re.findall(r"`(?:rate\()?(headrace_\w+)", _section("What CEP-44 asks for"))
    assert (10, set()) == (len(asked_for), {*asked_for} - known)
    chosen = [
        (name, label, value)
        for query in queries
        for name, labels in re.findall(r"(headrace_\w+)\{(.+?)\}", query)
        for label, values in re.findall(r"(\w+)[!=]=?~?\"(.+?)\"", labels)
        for value in values.split("|")
        if label != "job"
    ]
    fates = {each.metric: {*each.left, *each.right} for each in BOOKKEEPING.groups}
    values = fates | {
        "headrace_changes_total": {*TableCounts().fates},
        "headrace_split_state": {state.value for state in Observed},
    }
    for name, label, value in chosen:
        assert value in values[name], (name, label, value)
    names = {n for n in found if not n.endswith(("_bucket", "_count", "_sum"))}
    assert set() == (names | of_agent) - documented


def test_alerts_name_what_to_do() -> None:
    """Each alert has the place of a page in this repository, with a heading that exists."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]:
        page, _, heading = rule["annotations"]["runbook_url"].partition("#")
        lines = (ROOT / page).read_text().splitlines()
        headings = [line.lstrip("# ").lower().replace(" ", "-") for line in lines if "# " in line]
        assert not heading or heading in headings, rule["alert"]


def test_each_alert_is_tested() -> None:
    """`make alerts` shows of each alert when it comes, and when it does not."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    tests = yaml.safe_load(RULES.with_name("headrace.tests.yaml").read_text())["tests"]
    looks = [look for test in tests for look in test["alert_rule_test"]]
    for name in [rule["alert"] for rule in group["rules"]]:
        found = [bool(look.get("exp_alerts")) for look in looks if look["alertname"] == name]
        assert {True, False} == set(found), name


def _section(title: str) -> str:
    text = (ROOT / "docs" / "metrics.md").read_text()
    return text.partition(f"## {title}")[2].partition("\n## ")[0]


def test_one_text_of_many_processes() -> None:
    """A worker tells what its jobs' processes do; one that does not answer is left out."""
    jobs = [
        Metrics(("127.0.0.1", 0), lambda n=n: [counter("h_total", "Said.", [({}, n)])], f"j{n}")  # type: ignore[misc]
        for n in (1, 2)
    ]
    gone = Metrics(("127.0.0.1", 0), list, "gone")
    gone.close()
    ports = {metrics.port: str(pump) for pump, metrics in enumerate((*jobs, gone), start=1)}
    found = merged(ports)
    text = encoded(found)[0].decode()
    openmetrics, media_type = encoded(found, "application/openmetrics-text; version=1.0.0")
    for each in jobs:
        each.close()

    both = [({"job": "j1", "pump": "1"}, 1), ({"job": "j2", "pump": "2"}, 2)]
    assert both == samples(text)["h_total"]
    assert 1 == text.count("# HELP h_total Said.")
    assert media_type.startswith("application/openmetrics-text")
    (family,) = (f for f in openmetrics_families(openmetrics.decode()) if f.name == "h")  # type: ignore[no-untyped-call]
    assert both == [(each.labels, each.value) for each in family.samples]


def test_timings_are_histograms() -> None:
    """What was observed is in the first bucket that is not below it, and in all behind that."""
    timing = Timing()
    for ms in (0, 1, 2, 61_000):
        timing.observe(ms)
    measures = [Measure("t_seconds", "It took.", Kind.HISTOGRAM, [({}, timing)])]
    found = samples(exposition([*measures, gauge("g", "Is.", [({"a": "b"}, 2)])]).decode())

    buckets = {labels["le"]: value for labels, value in found["t_seconds_bucket"]}
    assert (2, 3, 3, 4) == (buckets["0.001"], buckets["0.005"], buckets["60.0"], buckets["+Inf"])
    assert ([({}, 4)], [({}, 61.003)]) == (found["t_seconds_count"], found["t_seconds_sum"])
    assert [({"a": "b"}, 2)] == found["g"]


@pytest.mark.parametrize("given", ["9404", "127.0.0.1:x", "127.0.0.1:70000", "0.0.0.0:9404", ":1"])
def test_only_this_machine_is_reported(given: str) -> None:
    """Without TLS and users no one else is served; and an address has a port."""
    with pytest.raises(ConfigError, match="--metrics: "):
        metrics_address(given, key="--metrics")


def test_no_version_of_python_is_reported() -> None:
    """The answer names headrace as the server, and nothing that runs it."""
    metrics = Metrics(("127.0.0.1", 0), list, "a")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
            assert ["headrace"] == answer.headers.get_all("Server")
            assert b"headrace_info" in answer.read()
    finally:
        metrics.close()


def test_an_address_that_is_taken() -> None:
    """A second process at one address is refused by name."""
    first = Metrics(("127.0.0.1", 0), list, "a")
    with pytest.raises(MetricsAddressError, match="cannot listen"):
        Metrics(("127.0.0.1", first.port), list, "b")
    first.close()
    Metrics(("127.0.0.1", first.port), list, "b").close()
