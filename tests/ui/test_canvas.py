"""The canvas over HTTP: rows by their hashes, its content security policy, and rendering for a contact."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.ui.test_canvas_mouse_and_keyboard import TEXT, open_editor
from tests.ui.test_roles import request_page, session_cookie

MARK = re.compile(r"<!--cn:(.*?)-->")


@pytest.fixture(scope="module")
def get(server: Server, api: Client) -> Callable[..., Any]:
    """Return a function that requests a page as the owner."""
    cookie = session_cookie(server, EMAIL)
    assert PASSWORD and request_page(server, "GET", "/templates", cookie)[0] == 200
    return lambda path, **headers: api.request("GET", path, headers={"Cookie": cookie} | headers)


def make(api: Client, *sections: dict[str, Any]) -> int:
    """Create a template of sections and return its id."""
    return int(api.post("/templates", {"name": "T", "design": {"sections": list(sections)}}).expect(201)["id"])


def heading(key: str, text: str, **props: Any) -> dict[str, Any]:
    """Return a heading section."""
    return {"id": key, "type": "heading", "props": {"text": text, **props}}


def get_rows(get: Callable[..., Any], template_id: int, have: str = "") -> Any:
    """Return the rows that the canvas loads."""
    return get(f"/templates/{template_id}/rows?have={have}").expect(200)


def test_only_changed_rows_are_sent(get: Callable[..., Any], api: Client) -> None:
    """An edit sends only its row, a move sends none, and a theme change sends the frame."""
    template_id = make(api, heading("a", "First"), heading("b", "Second"), heading("c", "Third"))
    first = get_rows(get, template_id)
    assert len(first["rows"]) == 3 and "Second" in first["rows"][1][1]
    have = ",".join([first["frame"][0], *(name for name, _ in first["rows"])])
    again = get_rows(get, template_id, have)
    assert again["frame"][1] is None and [html for _, html in again["rows"]] == [None] * 3
    design = api.get(f"/templates/{template_id}").expect(200)["design"]
    design["sections"][1]["props"]["text"] = "Changed"
    api.patch(f"/templates/{template_id}", {"design": design}).expect(200)
    edited = get_rows(get, template_id, have)
    assert [html is None for _, html in edited["rows"]] == [True, False, True] and edited["frame"][1] is None
    design["sections"].reverse()
    api.patch(f"/templates/{template_id}", {"design": design}).expect(200)
    moved = get_rows(get, template_id, have + "," + edited["rows"][1][0])
    assert [name for name, _ in moved["rows"]] == [name for name, _ in reversed(edited["rows"])]
    assert all(html is None for _, html in moved["rows"])
    api.patch(f"/templates/{template_id}", {"design": design | {"theme": {"bg_color": "#ffeedd"}}}).expect(200)
    assert get_rows(get, template_id, have)["frame"][1] is not None


def test_section_marks(get: Callable[..., Any], api: Client) -> None:
    """Each section has a mark with its key and label, and each column one with its number, also if empty."""
    inner = {"sections": [heading("in", "Inside", name="My heading")]}
    template_id = make(api, {"id": "cols", "type": "columns", "props": {"columns": [inner, {"sections": []}]}})
    page = get(f"/templates/{template_id}/canvas").text
    marks = [json.loads(mark) for mark in MARK.findall(page)]
    assert isinstance(marks[0], str)
    assert marks[1:] == [["cols", "Columns", None, True, False], 0, ["in", "My heading", 0, True, False], 1]
    assert "Empty column" in page and page.count("<!--cn:") == page.count("<!--/cn:-->")


def test_hostile_documents_in_the_canvas(get: Callable[..., Any], api: Client) -> None:
    """Hostile ids, names and texts stay text, and the policy allows only our scripts."""
    bad = '--><script>alert(1)</script><!--cn:["x","y",0,true]-->{{ "a" }}'
    template_id = make(
        api, heading(bad, "<script>alert(2)</script>", name=bad), heading("x\u2028", "Two"), {"id": 7, "type": bad},
        {"id": "h", "type": "html", "props": {"html": f"<p onclick=x>Hi</p>{bad}<script src=//x></script>"}},
    )  # fmt: skip
    response = get(f"/templates/{template_id}/canvas")
    assert response.status == 200
    assert "alert(1)</script>" not in response.text.replace("&lt;", "") and "onclick" not in response.text
    assert len(re.findall("<script", response.text)) == 5
    marks = [json.loads(mark) for mark in MARK.findall(response.text)]
    assert len([mark for mark in marks if isinstance(mark, list)]) == 4
    policy = response.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts;") and "allow-same-origin" not in policy
    scripts = re.search(r"script-src ([^;]*)", policy)
    assert scripts is not None
    our_scripts = {f"{name}.js" for name in ("canvas", "swap", "pointer", "drag", "caret")}
    assert {mark.rpartition("/")[2] for mark in scripts[1].split()} == our_scripts
    assert "default-src 'none'" in policy and "frame-ancestors 'self'" in policy


def test_the_canvas_policy_behind_a_proxy(get: Callable[..., Any], api: Client, server: Server) -> None:
    """The policy allows scripts from the public host and from the host of the request."""
    response = get(f"/templates/{make(api, heading('a', 'One'))}/canvas", Host="inside:1")
    policy = response.headers["content-security-policy"]
    for host in ("inside:1", server.url.removeprefix("http://")):
        assert f" http://{host}/static/" in policy, policy


def test_the_canvas_for_a_contact(get: Callable[..., Any], api: Client) -> None:
    """The canvas shows a contact's values and which sections are hidden for it; unknown ids return 404."""
    contact_id = api.post("/contacts", {"email": "mara@example.org", "first_name": "Mara"}).expect(201)["id"]
    only = [{"name": "contact_last_name", "predicate": "present"}]
    template_id = make(
        api, heading("a", "Hello {{ contact.first_name }}"), heading("b", "For all with a name", show_if=only)
    )
    assert "Hello Mara" in get(f"/templates/{template_id}/canvas?as={contact_id}").text
    assert "Heading: not shown to Mara" in get(f"/templates/{template_id}/canvas?as={contact_id}").text
    assert "For all with a name" in get(f"/templates/{template_id}/canvas").text
    assert get(f"/templates/{template_id}/canvas?as=999999").status == 404
    assert get("/templates/999999/rows").status == 404


def test_templates_without_rows(get: Callable[..., Any], api: Client) -> None:
    """An HTML template has no rows; an empty design has a placeholder row."""
    html_template_id = api.post("/templates", {"name": "Plain", "body": "<p>Dear {{ email }}</p>"}).expect(201)["id"]
    assert get_rows(get, html_template_id)["rows"] is None
    empty_rows = get_rows(get, make(api))
    assert len(empty_rows["rows"]) == 1 and "This email is empty. Add a section." in empty_rows["rows"][0][1]


def test_the_merge_tag_picker(get: Callable[..., Any], api: Client) -> None:
    """Data keys have an example and the share of contacts without them; links are offered for emails only."""
    for number in range(4):
        api.post("/contacts", {"email": f"p{number}@example.net", "data": {"pet": {"name": "Rex"}} if number else {}})
    page = get("/templates/merge").text
    assert 'data-tag="{{ contact.data.pet.name }}"' in page and "Rex" in page and "% of contacts have no value" in page
    assert "unsubscribe_url" in page
    sms_template_id = api.post("/templates", {"name": "N", "channel": "sms", "body": "Hi"}).expect(201)["id"]
    assert 'data-name="unsubscribe_url"' not in get(f"/templates/merge?t={sms_template_id}").text
    assert get("/templates/merge?t=999999").status == 404


def test_the_size_of_an_email(server: Server, api: Client) -> None:
    """The editor warns from 80 KB and reports an error over the 102 KB that Gmail shows."""
    cookie, template_id = session_cookie(server, EMAIL), make(api, heading("a", "First"))
    sizes = []
    for count in (0, 43, 60):
        sections = [heading(f"t{index}", "Words") for index in range(count)]
        api.patch(f"/templates/{template_id}", {"design": {"sections": [heading("a", "First"), *sections]}}).expect(200)
        headers = {"Cookie": cookie, "HX-Request": "true"}
        sizes.append(api.request("GET", f"/templates/{template_id}/size", headers=headers).text)
    assert re.search(r"> · \d+ KB<", sizes[0])
    assert 'class="warn"' in sizes[1] and "KB: close to Gmail’s limit of 102 KB" in sizes[1]
    assert 'class="bad"' in sizes[2] and "KB: Gmail will clip this email" in sizes[2]


def test_the_canvas_shows_typed_text_at_once(browser_page: Page, api: Client) -> None:
    """Typed text appears in the canvas without waiting for the server's response."""
    page = browser_page
    frame = open_editor(page, make(api, heading("a", "First"), TEXT))
    page.locator("#o-a").click()
    expect(page.locator("#inspector").get_by_label("Text", exact=True)).to_have_text("First")
    page.route("**/sections/*", lambda route: None)
    page.locator("#inspector").get_by_label("Text", exact=True).fill("Second")
    expect(frame.get_by_role("heading", name="Second")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")


def test_a_finding_leads_to_its_section(get: Callable[..., Any], api: Client) -> None:
    """The editor opens at a document path of a preflight finding; a missing path opens the email."""
    template_id = make(api, heading("a", "First"), heading("b", "Second"))
    for path, key in (("sections[1]", "b"), ("sections[7]", "")):
        assert f'id="inspector" data-key="{key}"' in get(f"/templates/{template_id}/edit?path={path}").text
