"""The alerts for Prometheus and the dashboard for Grafana use only metrics and labels that the service has."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import appliance.app
import appliance.ops.metrics  # noqa: F401 - importing these declares the metrics of all modules
from appliance.core import metrics
from tests.kit import exposition
from tests.kit.client import Client
from tests.kit.server import ROOT

_FILES = ROOT / "packaging" / "monitoring"
_METRIC = re.compile(r"(campanero_\w+?)(?:_bucket|_count|_sum)?(?:\{([^}]*)\})?(?=[^\w{])")
_LABEL = re.compile(r'(\w+)(?==~?"|!=)')
_GROUPED = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
# Metrics of what the server of the test has not set up, with their labels, and the modules that have them
_WHEN_SET_UP: dict[str, set[str]] = {
    "copy_age_seconds": set(), "copy_bytes": set(), "copy_late": set(), "copy_proof_ok": set(),
    "copy_proof_age_seconds": set(), "copy_failures": {"kind"}, "litestream_up": set(),
    "litestream_lag_seconds": set(),
}  # fmt: skip
_MODULES_OF_THESE = ("ops/metrics.py", "ops/copy_jobs/metrics.py")
# Labels that Prometheus adds, and those of histograms
_ADDED = {"job", "instance", "le"}


def _alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((_FILES / "prometheus-alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads((_FILES / "grafana-dashboard.json").read_text())["panels"]
    return panels


def _expressions() -> Iterator[tuple[str, str]]:
    for rule in _alerts():
        yield rule["alert"], rule["expr"]
    for panel in _panels():
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


@pytest.fixture
def labels_by_metric(api: Client) -> dict[str, set[str]]:
    """The labels of each metric: of those that a scrape returns, and of those that have no samples yet."""
    families = exposition.parse(api.get("/metrics").text)
    scraped = {name: {label for _, pairs in family.samples for label, _ in pairs} for name, family in families.items()}
    source = "".join((ROOT / "appliance" / module).read_text() for module in _MODULES_OF_THESE)
    assert [name for name in _WHEN_SET_UP if f'"{name}"' not in source] == []
    others = {f"campanero_{name}": labels for name, labels in _WHEN_SET_UP.items()}
    return others | {name: set(metric.labels) for name, metric in metrics._declared.items()} | scraped


def test_expressions_use_existing_metrics(labels_by_metric: dict[str, set[str]]) -> None:
    """Each metric of an expression exists, with each label that the expression filters or groups by."""
    used = set()
    for place, expression in _expressions():
        labels: set[str] = set()
        for name, filters in _METRIC.findall(f"{expression} "):
            assert name in labels_by_metric, (place, name)
            assert set(_LABEL.findall(filters)) <= labels_by_metric[name] | _ADDED, (place, name, filters)
            labels |= labels_by_metric[name]
            used.add(name)
        grouped = {label.strip() for names in _GROUPED.findall(expression) for label in names.split(",")}
        assert grouped <= labels | _ADDED, (place, expression)
    unused = {name for name in labels_by_metric if not name.startswith("campanero_process_")} - used
    assert unused <= {"campanero_build_info"}, "add these to the dashboard"


def test_texts_of_alerts_and_panels() -> None:
    """Each alert has a severity and a summary, and no two panels have the same title, id or place."""
    for rule in _alerts():
        assert rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"]["summary"]
    panels = _panels()
    for key in ("title", "id"):
        assert len({panel[key] for panel in panels}) == len(panels), key
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels) and all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
