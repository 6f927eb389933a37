"""The canvas on the wire: rows by their digests, nothing that runs but our scripts, the email as a person gets it."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.kit.browser import shoot
from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.ui.test_canvas_hand import TEXT, kept, opened, sections
from tests.ui.test_roles import ask, signed_in

MARK = re.compile(r"<!--cn:(.*?)-->")


@pytest.fixture(scope="module")
def get(server: Server, api: Client) -> Callable[..., Any]:
    """Ask for a page as the owner; returns the response."""
    cookie = signed_in(server, EMAIL)
    assert PASSWORD and ask(server, "GET", "/templates", cookie)[0] == 200
    return lambda path, **headers: api.request("GET", path, headers={"Cookie": cookie} | headers)


def make(api: Client, *sections: dict[str, Any]) -> int:
    """Make a template of sections."""
    return int(api.post("/templates", {"name": "T", "design": {"sections": list(sections)}}).expect(201)["id"])


def heading(key: str, text: str, **props: Any) -> dict[str, Any]:
    """Return a heading."""
    return {"id": key, "type": "heading", "props": {"text": text, **props}}


def rows(get: Callable[..., Any], template: int, have: str = "") -> Any:
    """Return what a canvas is told."""
    return get(f"/templates/{template}/rows?have={have}").expect(200)


def test_only_what_changed_is_sent_again(get: Callable[..., Any], api: Client) -> None:
    """An edit of one section changes its row alone; a move changes none; a theme changes what stands around them."""
    one = make(api, heading("a", "First"), heading("b", "Second"), heading("c", "Third"))
    first = rows(get, one)
    assert len(first["rows"]) == 3 and "Second" in first["rows"][1][1]
    have = ",".join([first["frame"][0], *(name for name, _ in first["rows"])])
    again = rows(get, one, have)
    assert again["frame"][1] is None and [html for _, html in again["rows"]] == [None] * 3
    design = api.get(f"/templates/{one}").expect(200)["design"]
    design["sections"][1]["props"]["text"] = "Changed"
    api.patch(f"/templates/{one}", {"design": design}).expect(200)
    edited = rows(get, one, have)
    assert [html is None for _, html in edited["rows"]] == [True, False, True] and edited["frame"][1] is None
    design["sections"].reverse()
    api.patch(f"/templates/{one}", {"design": design}).expect(200)
    moved = rows(get, one, have + "," + edited["rows"][1][0])
    assert [name for name, _ in moved["rows"]] == [name for name, _ in reversed(edited["rows"])]
    assert all(html is None for _, html in moved["rows"])
    api.patch(f"/templates/{one}", {"design": design | {"theme": {"bg_color": "#ffeedd"}}}).expect(200)
    assert rows(get, one, have)["frame"][1] is not None


def test_marks_tell_where_sections_are(get: Callable[..., Any], api: Client) -> None:
    """Every section has its key and label, those in columns their column; an empty column can be dropped upon."""
    inner = {"sections": [heading("in", "Inside", name="My heading")]}
    one = make(api, {"id": "cols", "type": "columns", "props": {"columns": [inner, {"sections": []}]}})
    page = get(f"/templates/{one}/canvas").text
    told = [json.loads(found) for found in MARK.findall(page)]
    assert isinstance(told[0], str)
    assert told[1:] == [["cols", "Columns", None, True, False], 0, ["in", "My heading", 0, True, False], 1]
    assert "Empty column" in page and page.count("<!--cn:") == page.count("<!--/cn:-->")


def test_hostile_documents_only_ever_show(get: Callable[..., Any], api: Client) -> None:
    """Ids, names and texts that end no comment and begin no script; the policy names our scripts alone."""
    bad = '--><script>alert(1)</script><!--cn:["x","y",0,true]-->{{ "a" }}'
    one = make(
        api, heading(bad, "<script>alert(2)</script>", name=bad), heading("x\u2028", "Two"), {"id": 7, "type": bad},
        {"id": "h", "type": "html", "props": {"html": f"<p onclick=x>Hi</p>{bad}<script src=//x></script>"}},
    )  # fmt: skip
    answer = get(f"/templates/{one}/canvas")
    assert answer.status == 200
    assert "alert(1)</script>" not in answer.text.replace("&lt;", "") and "onclick" not in answer.text
    assert len(re.findall("<script", answer.text)) == 5
    told = [json.loads(found) for found in MARK.findall(answer.text)]
    assert len([found for found in told if isinstance(found, list)]) == 4
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts;") and "allow-same-origin" not in policy
    scripts = re.search(r"script-src ([^;]*)", policy)
    assert scripts is not None
    ours = {f"{name}.js" for name in ("canvas", "swap", "hand", "drag", "caret")}
    assert {found.rpartition("/")[2] for found in scripts[1].split()} == ours
    assert "default-src 'none'" in policy and "frame-ancestors 'self'" in policy


def test_a_proxy_may_ask_by_another_name(get: Callable[..., Any], api: Client, server: Server) -> None:
    """The frame finds its scripts under the address that people use, whatever host a proxy names."""
    answer = get(f"/templates/{make(api, heading('a', 'One'))}/canvas", Host="inside:1")
    policy = answer.headers["content-security-policy"]
    for host in ("inside:1", server.url.removeprefix("http://")):
        assert f" http://{host}/static/" in policy, policy


def test_it_is_shown_as_a_person_gets_it(get: Callable[..., Any], api: Client) -> None:
    """Their own values; a section that is not for them says so in its place; a stranger to the account is not found."""
    mara = api.post("/contacts", {"email": "mara@example.org", "first_name": "Mara"}).expect(201)["id"]
    only = [{"name": "contact_last_name", "predicate": "present"}]
    one = make(api, heading("a", "Hello {{ contact.first_name }}"), heading("b", "For all with a name", show_if=only))
    assert "Hello Mara" in get(f"/templates/{one}/canvas?as={mara}").text
    assert "Heading: not shown to Mara" in get(f"/templates/{one}/canvas?as={mara}").text
    assert "For all with a name" in get(f"/templates/{one}/canvas").text
    assert get(f"/templates/{one}/canvas?as=999999").status == 404
    assert get("/templates/999999/rows").status == 404


def test_what_cannot_be_rendered_is_said(get: Callable[..., Any], api: Client) -> None:
    """A template that is HTML has no rows; one without sections shows where the first will be."""
    plain = api.post("/templates", {"name": "Plain", "body": "<p>Dear {{ email }}</p>"}).expect(201)["id"]
    assert rows(get, plain)["rows"] is None
    empty = rows(get, make(api))
    assert len(empty["rows"]) == 1 and "Add a first section" in empty["rows"][0][1]


def test_the_picker_knows_the_people(get: Callable[..., Any], api: Client) -> None:
    """Data keys come with an example and the share of people who lack them; links are for emails alone."""
    for number in range(4):
        api.post("/contacts", {"email": f"p{number}@example.net", "data": {"pet": {"name": "Rex"}} if number else {}})
    page = get("/templates/merge").text
    assert 'data-tag="{{ contact.data.pet.name }}"' in page and "Rex" in page and "% have no" in page
    assert "unsubscribe_url" in page
    note = api.post("/templates", {"name": "N", "channel": "sms", "body": "Hi"}).expect(201)["id"]
    assert 'data-name="unsubscribe_url"' not in get(f"/templates/merge?t={note}").text
    assert get("/templates/merge?t=999999").status == 404


def test_the_editor_tells_the_size_as_it_is_sent(server: Server, api: Client) -> None:
    """Nothing beside the number while all is well; from 80 KB what Gmail shows, over 102 KB what it does."""
    cookie, one = signed_in(server, EMAIL), make(api, heading("a", "First"))
    said = []
    for count in (0, 43, 60):
        more = [heading(f"t{at}", "Words") for at in range(count)]
        api.patch(f"/templates/{one}", {"design": {"sections": [heading("a", "First"), *more]}}).expect(200)
        headers = {"Cookie": cookie, "HX-Request": "true"}
        said.append(api.request("GET", f"/templates/{one}/size", headers=headers).text)
    assert re.search(r"> · \d+ KB<", said[0])
    assert 'class="warn"' in said[1] and "KB: Gmail shows 102" in said[1]
    assert 'class="bad"' in said[2] and "KB: Gmail will cut it off" in said[2]


def test_a_text_is_written_where_it_stands(browser_page: Page, api: Client) -> None:
    """Double click writes in the canvas, by the field; what stands there stays until it is left; tags stay tags."""
    page = browser_page
    template = make(api, TEXT, heading("a", "First"))
    frame = opened(page, template)
    frame.get_by_role("heading", name="First").dblclick()
    writing = frame.locator("h2[data-writing]")
    expect(writing).to_be_focused()
    writing.evaluate("node => { node.kept = true }")
    page.keyboard.type(" of all")
    field = page.locator("#inspector").get_by_label("Text", exact=True)
    expect(field).to_have_text("First of all")
    expect(page.locator("#o-a")).to_contain_text("First of all")
    assert writing.evaluate("node => node.kept") is True
    shoot(page, "canvas-writing")
    page.keyboard.press("Escape")
    expect(writing).to_have_count(0)
    expect(frame.get_by_role("heading", name="First of all")).to_be_visible()
    frame.get_by_text("Hello Anna").dblclick()
    expect(frame.locator("[data-writing] [data-tag]")).to_have_text("First name")
    page.keyboard.press("Enter")
    page.keyboard.type("Good ")
    page.keyboard.press("Control+b")
    page.keyboard.type("news")
    frame.get_by_role("heading", name="First of all").click()
    expect(frame.get_by_text("Hello Anna, how are you?")).to_be_visible()
    said = kept(page, api, template, "content", re.compile("news"))
    assert said == "<p>Hello {{ first_name }}, how are you?</p><p>Good <strong>news</strong></p>"
    assert sections(api, template)[1]["props"]["text"] == "First of all"


def test_what_is_typed_is_seen_before_it_is_kept(browser_page: Page, api: Client) -> None:
    """The canvas shows a letter at once, without an answer of the server."""
    page = browser_page
    frame = opened(page, make(api, heading("a", "First"), TEXT))
    frame.get_by_role("heading", name="First").click()
    expect(page.locator("#inspector").get_by_label("Text", exact=True)).to_have_text("First")
    page.route("**/sections/*", lambda route: None)
    page.locator("#inspector").get_by_label("Text", exact=True).fill("Second")
    expect(frame.get_by_role("heading", name="Second")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")


def test_a_finding_leads_to_its_section(get: Callable[..., Any], api: Client) -> None:
    """The editor opens at a path of the document, as the checklist names it; one that is gone opens the email."""
    one = make(api, heading("a", "First"), heading("b", "Second"))
    for path, key in (("sections[1]", "b"), ("sections[7]", "")):
        assert f'id="inspector" data-key="{key}"' in get(f"/templates/{one}/edit?path={path}").text
