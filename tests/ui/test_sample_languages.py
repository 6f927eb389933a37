"""Sample content is in the language of the recipients."""

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.conftest import FreshServer
from tests.kit import pseudo_languages
from tests.kit.client import Client
from tests.kit.pseudo_languages import LONG, transform
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, PASSWORD, Server

_FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
_SUBJECT = "Three things worth your time"


def set_up_in_language(server: Server, language: str) -> Client:
    """Create the owner on the page of the set-up link in a language, and return a client of the new account."""
    form = {"name": "Ana", "account_name": "Bakery", "email": EMAIL, "password": PASSWORD}
    path = server.setup_link.removeprefix(server.url)
    response = Client(server.url, "").request(
        "POST", path, urlencode(form).encode(), {**_FORM, "Accept-Language": language}
    )
    assert response.status == 303
    server.key = server.new_key()
    return server.client()


def list_placeholders(api: Client, template: dict[str, Any]) -> set[str]:
    """Return the fields of the placeholder texts that the preview of a template reports."""
    content = {"document": template["design"], "subject": template["subject"], "preheader": template["preheader"]}
    warnings = api.post("/templates/preview", content).expect(200)["warnings"]
    return {warning["field"] for warning in warnings if warning["code"] == "placeholder_content"}


def find_newest_template(api: Client) -> dict[str, Any]:
    """Return the template that was created last."""
    newest = max(row["id"] for row in api.get("/templates").expect(200))
    return dict(api.get(f"/templates/{newest}").expect(200))


def test_sample_content_is_in_the_language_of_the_set_up(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Starters, new sections and flows have the language of the set-up page, and preflight knows their texts."""
    server = fresh_server(set_up=False, address=False, env=pseudo_languages.environment(tmp_path))
    api = set_up_in_language(server, LONG)
    assert api.get("/account").expect(200)["locale"] == LONG
    browser = ScriptlessBrowser(api)

    browser.post("/templates/begin", starter="newsletter")
    template = find_newest_template(api)
    assert template["subject"] == transform(_SUBJECT)
    assert template["design"]["sections"][1]["props"]["text"] == transform(_SUBJECT)
    assert {"subject", "preheader", "document.sections[1]"} <= list_placeholders(api, template)
    assert transform(_SUBJECT) in browser.get("/brand/sample")

    browser.post(f"/templates/{template['id']}/sections", kind="list", parent="")
    added = find_newest_template(api)["design"]["sections"][-2]
    assert [item["title"] for item in added["props"]["items"]] == [
        transform(title) for title in ("First item", "Second item", "Third item")
    ]

    starter = next(row for row in api.get("/flows/starters").expect(200)["starters"] if row["key"] == "win_back")
    assert starter["label"] == "Win-back" and starter["name"] == transform("Win-back")
    flow = api.post("/flows", {"starter": "win_back"}).expect(201)
    assert flow["name"] == transform("Win-back")
    spec = api.get("/templates/spec").expect(200)["starters"]
    assert next(row["subject"] for row in spec if row["name"] == "offer") == transform("20% off until Sunday")
