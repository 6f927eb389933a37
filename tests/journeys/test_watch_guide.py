"""The Prometheus configuration in the monitoring guide is valid and names metrics that exist."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.core import metrics
from tests.kit import exposition
from tests.kit.client import Client
from tests.kit.server import ROOT

GUIDE = Path(ROOT, "ui/guides/watch.md").read_text(encoding="utf-8")
SCRAPE, ALERTS = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL))


@pytest.fixture(scope="module")
def known(api: Client) -> dict[str, exposition.Family | None]:
    """All metrics: those of the response, and those without a value so far."""
    importlib.import_module("appliance.http.server")  # declares all metrics
    return {
        **dict.fromkeys(metric.name for metric in metrics.collect(None)),
        **exposition.parse(api.get("/metrics").text),
    }


def test_the_scrape_configuration() -> None:
    """One job with a key from a file and the default address."""
    [job] = SCRAPE["scrape_configs"]
    assert set(job) == {"job_name", "scrape_interval", "authorization", "static_configs"}
    assert job["static_configs"] == [{"targets": ["127.0.0.1:8080"]}]
    assert set(job["authorization"]) == {"credentials_file"}


def test_alerts_use_existing_metrics(known: dict[str, Any]) -> None:
    """Each of the three rules is complete and uses metrics and labels that are exported."""
    [group] = ALERTS["groups"]
    assert len(group["rules"]) == 3
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"} and rule["annotations"]["summary"]
        named = set(re.findall(r"campanero_\w+", rule["expr"]))
        assert named or rule["expr"] == f'up{{job="{SCRAPE["scrape_configs"][0]["job_name"]}"}} == 0'
        assert named <= set(known)
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            [name] = named
            assert known[name].values_of(label)


def test_every_metric_is_documented(known: dict[str, Any]) -> None:
    """The table of the guide names exactly the exported metrics, with those of Litestream, which does not run here."""
    table = set(re.findall(r"`(campanero_\w+)`", GUIDE))
    assert table == set(known) | {"campanero_litestream_up", "campanero_litestream_lag_seconds"}
