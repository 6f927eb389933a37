"""Edit conflicts of forms without JavaScript: the second user decides, and other changes of the first stay."""

import html
import re
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import pytest

from tests.kit.client import Client
from tests.kit.sampling import every_nth
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD


class Case(NamedTuple):
    """A form: its initial values, what the first and the second user change, and the text about the conflict.

    `reads` returns the stored value of the field that both changed.
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
    form = ScriptlessBrowser(api).get("/settings/team").partition(f'action="/settings/team/{things["user"]}/role"')[2]
    return re.findall(r'value="(\w+)" selected', form.partition("</form>")[0])[0]


def _flow(api: Client, things: dict[str, int]) -> Any:
    return api.get(f"/flows/{things['flow']}").expect(200)


CASES = {
    "webhook": Case(
        "/settings/webhooks/{webhook}/edit", "/settings/webhooks/{webhook}", "Events",
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
        {"email.transport": "relay", "email.relay.host": "was.example.com", "email.relay.port": "587"},
        {"email.relay.host": "a.example.com"}, {"email.relay.host": "b.example.com"},
        "theirs a.example.com , yours b.example.com",
        lambda api, _: re.findall(
            r'name="email.relay.host"[^>]* value="([^"]*)"', ScriptlessBrowser(api).get("/welcome/mail")
        )[0],
    ),
    "look": Case(
        "/welcome/brand", "/welcome/brand", "Brand colour", {"brand_color": "", "text_color": ""},
        {"brand_color": "#112233"}, {"brand_color": "#445566"}, "theirs #112233 , yours #445566",
        lambda api, _: api.get("/brand").expect(200)["brand_color"],
    ),
    "name of a campaign": Case(
        "/campaigns/{campaign}", "/campaigns/{campaign}/name", "Name", {"name": "Letter"}, {"name": "Spring"},
        {"name": "Easter"}, "theirs Spring , yours Easter",
        lambda api, things: api.get(f"/campaigns/{things['campaign']}").json["name"],
    ),
    "step of a flow": Case(
        "/flows/{flow}?step={wait}", "/flows/{flow}/steps/{wait}", "Duration",
        {"duration": "1", "duration_unit": "86400"}, {"duration": "2"}, {"duration": "3"},
        "theirs 2 days , yours 3 days",
        lambda api, things: f"{_flow(api, things)['steps'][0]['duration'] // 86_400} days",
    ),
    "start of a flow": Case(
        "/flows/{flow}", "/flows/{flow}/trigger", "Trigger",
        {"event": "tag_add", "event_name": "", "contact_list_id": "", "often": "", "tag": "", "gap": "30", "goal": ""},
        {"tag": "new"}, {"tag": "old"}, "theirs Tag added, new , yours Tag added, old",
        lambda api, things: f"Tag added, {_flow(api, things)['trigger']['data']['tag']}",
    ),
}  # fmt: skip
# Fields that only the first user changes, and how they are read
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
    """Ids of new objects of each kind."""
    webhook = {"url": "https://example.com/hook", "events": ["contact_add"]}
    email = f"ann{next(_NUMBERS)}@example.org"
    paper = ScriptlessBrowser(api)
    assert paper.status("POST", "/settings/team", email=email, role="editor") == 303
    [link] = re.findall(r'value="http[^"]*(/invitations/[^"]+)"', paper.get("/settings/team"))
    assert ScriptlessBrowser(api).status("POST", link, name="Ann", password=PASSWORD) == 303
    rows = re.findall(r"<tr>.*?</tr>", paper.get("/settings/team"), re.S)
    [row_of_user] = [row for row in rows if email in row]
    [user] = set(re.findall(r"/settings/team/(\d+)/role", row_of_user))
    steps = [{"duration": 86_400}, {"filters": RULES, "yes": [], "no": []}]
    flow = api.post("/flows", {"name": "Readers", "trigger": {"event": "contact_add"}, "steps": steps}).expect(201)
    wait, split = (step["id"] for step in flow["steps"])
    return {
        "flow": flow["id"], "wait": wait, "split": split,
        "webhook": api.post("/webhooks", webhook).expect(201)["id"],
        "campaign": api.post("/campaigns", {"name": "Letter"}).expect(201)["id"],
        "user": int(user),
    }  # fmt: skip


def form_state(page: str, path: str) -> str:
    """Return the hidden former values of a form of a page."""
    form = page.partition(f'action="{path}"')[2].partition("</form>")[0]
    state = form.partition('name="seen" value="')[2].partition('"')[0]
    assert state
    return html.unescape(state)


def visible_text(text: str) -> str:
    """Return the text of a page without tags."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


@pytest.mark.parametrize("choice", ["mine", "theirs"])
@pytest.mark.parametrize("name", every_nth(CASES, 2))
def test_an_edit_conflict_asks_the_second_user(name: str, choice: str, api: Client, things: dict[str, int]) -> None:
    """Nothing is written until the second user chooses; fields that only the first user changed keep their values."""
    case, paper = CASES[name], ScriptlessBrowser(api)
    path, (other, reads_other) = case.path.format(**things), OTHERS.get(name, ({}, None))
    assert paper.status("POST", path, **case.was) == 303
    former_state = form_state(paper.get(case.page.format(**things)), path)
    theirs, mine = case.asks.removeprefix("theirs ").split(" , yours ")
    assert paper.status("POST", path, **{**case.was, **case.first, **other}, seen=former_state) == 303
    conflict = paper.submit(path, **{**case.was, **case.second}, seen=former_state)
    assert conflict.status == 409
    text = visible_text(conflict.text)
    assert "Someone else saved changes while you were editing. Your changes are still here, but not saved yet." in text
    assert f"{case.label} : {case.asks}" in text
    assert case.reads(api, things) == theirs
    # The returned form has the values that only the first user changed
    assert all(value in conflict.text for value in other.values())
    resubmission = {**case.was, **other, **case.second, "seen": form_state(conflict.text, path), choice: case.label}
    assert paper.status("POST", path, **resubmission) == 303
    assert case.reads(api, things) == (mine if choice == "mine" else theirs)
    if reads_other is not None:
        assert reads_other(api, things) == next(iter(other.values()))


def test_errors_of_the_welcome_form(api: Client) -> None:
    """An invalid value on the first set-up screen is an error, and input is kept."""
    response = ScriptlessBrowser(api).submit(
        "/welcome", company_name="Bread", email_from_email="nobody", time_zone="UTC"
    )
    assert response.status == 422 and 'value="nobody"' in response.text
