"""Two at one form, without a script: whoever saves second is asked, and what only the first changed stays."""

import html
import re
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import pytest

from tests.kit.client import Client
from tests.kit.paper import Paper


class Case(NamedTuple):
    """A form: what stands in it, what the first and the second change, and how the page asks about what both changed.

    `reads` answers what is kept of the part that both changed.
    """

    page: str
    path: str
    label: str
    was: dict[str, Any]
    first: dict[str, Any]
    second: dict[str, Any]
    asks: str
    reads: Callable[[Client, dict[str, int]], Any]


def _role(api: Client, things: dict[str, int]) -> Any:
    form = Paper(api).get("/settings/team").partition(f'action="/settings/team/{things["user"]}/role"')[2]
    return re.findall(r'value="(\w+)" selected', form.partition("</form>")[0])[0]


def _flow(api: Client, things: dict[str, int]) -> Any:
    return api.get(f"/flows/{things['flow']}").expect(200)


CASES = {
    "webhook": Case(
        "/settings/webhooks/{webhook}/edit", "/settings/webhooks/{webhook}", "What it hears of",
        {"url": "https://example.com/hook", "which": "some", "events": ["contact_add"], "own": ""},
        {"own": "order_paid"}, {"events": ["contact_delete"]}, "theirs contact_add, order_paid , yours contact_delete",
        lambda api, things: ", ".join(api.get(f"/webhooks/{things['webhook']}").expect(200)["events"]),
    ),
    "role": Case(
        "/settings/team", "/settings/team/{user}/role", "Role of Ann", {"role": "editor"}, {"role": "author"},
        {"role": "viewer"}, "theirs Author , yours Viewer", lambda api, things: _role(api, things).title(),
    ),
    "who writes": Case(
        "/welcome", "/welcome", "Company",
        {"company_name": "", "physical_address": "", "email_from_name": "", "email_from_email": "", "time_zone": "UTC"},
        {"company_name": "Bread"}, {"company_name": "Buns"}, "theirs Bread , yours Buns",
        lambda api, _: api.get("/brand").expect(200)["company_name"],
    ),
    "how mail leaves": Case(
        "/welcome/mail", "/welcome/mail", "Server",
        {"email.transport": "capture", "email.relay.host": "", "email.relay.port": "587"},
        {"email.relay.host": "a.example.com"}, {"email.relay.host": "b.example.com"},
        "theirs a.example.com , yours b.example.com",
        lambda api, _: re.findall(r'name="email.relay.host"[^>]* value="([^"]*)"', Paper(api).get("/welcome/mail"))[0],
    ),
    "look": Case(
        "/welcome/brand", "/welcome/brand", "Brand", {"brand_color": "", "text_color": ""},
        {"brand_color": "#112233"}, {"brand_color": "#445566"}, "theirs #112233 , yours #445566",
        lambda api, _: api.get("/brand").expect(200)["brand_color"],
    ),
    "name of a campaign": Case(
        "/campaigns/{campaign}", "/campaigns/{campaign}/name", "Name", {"name": "Letter"}, {"name": "Spring"},
        {"name": "Easter"}, "theirs Spring , yours Easter",
        lambda api, things: api.get(f"/campaigns/{things['campaign']}").json["name"],
    ),
    "step of a flow": Case(
        "/flows/{flow}?step={wait}", "/flows/{flow}/steps/{wait}", "How long",
        {"duration": "1", "duration_unit": "86400"}, {"duration": "2"}, {"duration": "3"},
        "theirs 2 days , yours 3 days",
        lambda api, things: f"{_flow(api, things)['steps'][0]['duration'] // 86_400} days",
    ),
    "start of a flow": Case(
        "/flows/{flow}", "/flows/{flow}/trigger", "Start",
        {"event": "tag_add", "event_name": "", "contact_list_id": "", "often": "", "tag": "", "gap": "30", "goal": ""},
        {"tag": "new"}, {"tag": "old"}, "theirs Gets a tag, new , yours Gets a tag, old",
        lambda api, things: f"Gets a tag, {_flow(api, things)['trigger']['data']['tag']}",
    ),
}  # fmt: skip
# What only the first changes, and how that is read
OTHERS = {
    "webhook": (
        {"url": "https://example.com/new"},
        lambda api, things: api.get(f"/webhooks/{things['webhook']}").json["url"],
    ),
    "who writes": ({"physical_address": "4 Mill Lane"}, lambda api, _: api.get("/brand").json["physical_address"]),
    "start of a flow": ({"goal": "order_paid"}, lambda api, things: _flow(api, things)["goal"]),
    "look": ({"text_color": "#101010"}, lambda api, _: api.get("/brand").json["text_color"]),
}
_NUMBERS = count(1)
RULES = [{"name": "contact_country", "predicate": "eq", "value": "DE"}]


@pytest.fixture
def things(api: Client) -> dict[str, int]:
    """One of each, as new."""
    hook = {"url": "https://example.com/hook", "events": ["contact_add"]}
    email = f"ann{next(_NUMBERS)}@example.org"
    paper = Paper(api)
    assert paper.status("POST", "/settings/team", email=email, name="Ann", role="editor") == 303
    rows = re.findall(r"<tr>.*?</tr>", paper.get("/settings/team"), re.S)
    [mine] = [row for row in rows if email in row]
    [user] = set(re.findall(r"/settings/team/(\d+)/role", mine))
    steps = [{"duration": 86_400}, {"filters": RULES, "yes": [], "no": []}]
    flow = api.post("/flows", {"name": "Readers", "trigger": {"event": "contact_add"}, "steps": steps}).expect(201)
    wait, split = (one["id"] for one in flow["steps"])
    return {
        "flow": flow["id"], "wait": wait, "split": split,
        "webhook": api.post("/webhooks", hook).expect(201)["id"],
        "campaign": api.post("/campaigns", {"name": "Letter"}).expect(201)["id"],
        "user": int(user),
    }  # fmt: skip


def seen(page: str, path: str) -> str:
    """Return what a form of a page remembers."""
    form = page.partition(f'action="{path}"')[2].partition("</form>")[0]
    found = form.partition('name="seen" value="')[2].partition('"')[0]
    assert found
    return html.unescape(found)


def words(text: str) -> str:
    """Return what people read of a page."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


@pytest.mark.parametrize("answer", ["mine", "theirs"])
@pytest.mark.parametrize("name", CASES)
def test_the_second_who_saves_is_asked(name: str, answer: str, api: Client, things: dict[str, int]) -> None:
    """Nothing is written until somebody has said which of two counts; what only the first changed stays in any case."""
    case, paper = CASES[name], Paper(api)
    path, (other, reads_other) = case.path.format(**things), OTHERS.get(name, ({}, None))
    assert paper.status("POST", path, **case.was) == 303
    was = seen(paper.get(case.page.format(**things)), path)
    theirs, mine = case.asks.removeprefix("theirs ").split(" , yours ")
    assert paper.status("POST", path, **{**case.was, **case.first, **other}, seen=was) == 303
    asked = paper.ask(path, **{**case.was, **case.second}, seen=was)
    assert asked.status == 409
    told = words(asked.text)
    assert "Somebody else saved this meanwhile. What you typed is kept, and not saved yet." in told
    assert f"{case.label} : {case.asks}" in told
    assert case.reads(api, things) == theirs
    # The form that is answered has taken over what only the first changed
    assert all(value in asked.text for value in other.values())
    again = {**case.was, **other, **case.second, "seen": seen(asked.text, path), answer: case.label}
    assert paper.status("POST", path, **again) == 303
    assert case.reads(api, things) == (mine if answer == "mine" else theirs)
    if reads_other is not None:
        assert reads_other(api, things) == next(iter(other.values()))


def test_what_cannot_be_kept_of_who_writes_is_said(api: Client) -> None:
    """The first screen says what is wrong, with all that was typed."""
    asked = Paper(api).ask("/welcome", company_name="Bread", email_from_email="nobody", time_zone="UTC")
    assert asked.status == 422 and 'value="nobody"' in asked.text
