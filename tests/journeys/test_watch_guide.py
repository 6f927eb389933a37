"""What the guide for whoever watches gives to Prometheus: read as Prometheus reads it, about numbers that exist."""

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
SCRAPE, ALERTS = (yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL))


@pytest.fixture(scope="module")
def known(api: Client) -> dict[str, exposition.Family | None]:
    """Every number there is: those that are said now, and those that have had nothing to count yet."""
    importlib.import_module("appliance.http.server")  # with which all that counts is declared
    return {**dict.fromkeys(one.name for one in metrics.collect(None)), **exposition.parse(api.get("/metrics").text)}


def test_the_scrape_asks_where_the_service_listens() -> None:
    """One job, a bearer key out of a file, and the usual address; the usual path is `/metrics`."""
    [job] = SCRAPE["scrape_configs"]
    assert set(job) == {"job_name", "scrape_interval", "authorization", "static_configs"}
    assert job["static_configs"] == [{"targets": ["127.0.0.1:8080"]}]
    assert set(job["authorization"]) == {"credentials_file"}


def test_alerts_speak_of_numbers_that_exist(known: dict[str, Any]) -> None:
    """Three rules, each whole, of names and labels that are scraped."""
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


def test_every_number_has_its_line(known: dict[str, Any]) -> None:
    """The table of the guide names all numbers, and none that is not there."""
    table = set(re.findall(r"`(campanero_\w+)`", GUIDE))
    assert table == set(known)
