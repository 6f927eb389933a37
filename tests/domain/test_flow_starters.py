"""The ready-made flows: their simulations show what they say, and their words can be sent as they are."""

import re
from typing import Any

import pytest

from appliance.accounts.audit import Actor
from appliance.content.designs import document as designs
from appliance.content.designs.render import render_design
from appliance.content.designs.theme import Look
from appliance.content.templates import placeholders
from appliance.core import validation
from appliance.flows import simulation, starters, store
from appliance.flows.document import walk
from appliance.flows.store import FlowCreate
from appliance.storage import transactions
from tests.domain.home import Home

LOOK = Look(locale="en", links=(("website", "https://shop.acme.example"),))
STARTERS = {starter.key: starter for starter in starters.build_starters(LOOK)}
# Their emails are shared with the samples of the editor, which authors are expected to rewrite.
SAMPLES = {"welcome", "win_back", "birthday", "cart", "sunset", "after_event"}


def create_flow(home: Home, key: str) -> Any:
    """Create a flow from a starter."""
    body = validation.read(FlowCreate, {"starter": key})
    completed, parsed = store.prepare_create(home.account_id, body)
    return transactions.write(store.create, home.account_id, completed, parsed, Actor("key:1"))


def test_there_are_fourteen_starters() -> None:
    """Keys, labels and descriptions are unique, and each has a simulation."""
    assert len(STARTERS) == 14 == len({starter.label for starter in STARTERS.values()})
    assert len({starter.description for starter in STARTERS.values()}) == 14
    assert all(starter.data["scripts"] and starter.count_emails() for starter in STARTERS.values())
    assert STARTERS["onboarding"].count_emails() == 5


@pytest.mark.parametrize("key", STARTERS)
def test_the_simulations_of_a_starter_pass(home: Home, key: str) -> None:
    """They are saved with the flow and show each of its emails."""
    flow = create_flow(home, key)
    count = len(STARTERS[key].data["scripts"])
    results = [simulation.run_scripts(flow, indexes=range(index, index + 1))[0] for index in range(count)]
    assert [(result.name, result.failures) for result in results if not result.passed] == []
    emails = {step["id"] for _, step in walk(flow.steps) if step["type"] == "email"}
    sent = {
        expected["step"]
        for script in flow.data["scripts"]
        for expected in script["expect"]
        if expected.get("outcome") == "on"
    }
    assert emails <= sent


@pytest.mark.parametrize("key", STARTERS)
def test_the_words_of_a_starter(key: str) -> None:
    """Subjects are short, previews add something to them, and nothing is a placeholder or a link without address."""
    for _, step in walk(STARTERS[key].steps):
        if "design" not in step:
            continue
        assert 5 < len(step["subject"]) <= 100 and step["preheader"] and step["preheader"] != step["subject"]
        rendered = render_design(step["design"], LOOK)
        assert designs.find_unknown(step["design"]) == [] and "{{ unsubscribe_url }}" in rendered.html
        assert not re.search(r"lorem|\bTODO\b|\[[A-Z]|example\.com|href=\"#\"", rendered.html)
        if key not in SAMPLES:
            values = {"subject": step["subject"], "preheader": step["preheader"], "design": step["design"], "body": ""}
            assert list(placeholders.find_placeholders(values)) == []


def test_a_starter_with_other_steps_has_no_simulations(home: Home) -> None:
    """They are about the steps of the starter."""
    body = validation.read(FlowCreate, {"starter": "cart", "steps": []})
    completed, _ = store.prepare_create(home.account_id, body)
    assert not completed.data
