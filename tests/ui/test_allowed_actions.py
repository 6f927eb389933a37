"""Pages offer only what the user may do: each link opens, and each button is allowed."""

import re
from html.parser import HTMLParser

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.page_scopes import role_allows
from tests.kit.sampling import is_full, sampled
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.tenants import two_tenants

# Roles in an account with one object of each kind, and a viewer in an empty account
ROLES = (("author", "ours"), ("editor", "ours"), ("viewer", "ours"), ("viewer", "theirs"))


class Offers(HTMLParser):
    """The links of a page, and the actions that its forms and enabled buttons would send."""

    def __init__(self, page: str, path: str) -> None:
        super().__init__()
        self.links, self.actions = set[str](), set[str]()
        self._path, self._form, self._off = path.partition("?")[0], "", list[bool]()
        self._named, self._late = dict[str, str](), list[str]()
        self.feed(page)
        self.actions |= {self._named[name] for name in self._late if name in self._named}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a link, a form, or an enabled button."""
        attributes = {name: value or "" for name, value in attrs}
        if tag == "fieldset":
            self._off.append("disabled" in attributes)
        urls = (attributes.get(name, "").partition("#")[0] for name in ("href", "hx-get"))
        self.links |= {url for url in urls if url.startswith("/")}
        if tag == "form":
            self._form = (attributes.get("action") or self._path) if attributes.get("method") == "post" else ""
            self._named[attributes.get("id", "")] = self._form
        is_disabled = any(self._off) or "disabled" in attributes
        if "hx-trigger" in attributes and "hx-post" in attributes and not is_disabled:
            self.actions.add(attributes["hx-post"])
        if tag == "button" and attributes.get("type", "submit") == "submit" and not is_disabled:
            self.actions.add(attributes.get("hx-post") or attributes.get("formaction") or self._form)
            self._late += [attributes["form"]] if "form" in attributes else []

    def handle_endtag(self, tag: str) -> None:
        """Leave a form or a fieldset."""
        if tag == "form":
            self._form = ""
        if tag == "fieldset" and self._off:
            self._off.pop()


@pytest.fixture(scope="module")
def user_ids(server: Server) -> dict[str, int]:
    """An account with one object of each kind and an empty one; the id of the test user of each."""
    ours, theirs = two_tenants(server)
    list_id = ours.object_ids["lists"]
    ours.api.post("/contacts", {"email": "z@example.org", "phone": "+14155551999", "opt_in": True})
    send_fields = {
        "trigger_attributes": {"contact_list_id": list_id},
        "template_attributes": {"subject": "s", "body": "<p>x"},
    }
    ours.api.post("/campaigns", {"name": "later", "scheduled_at": "2099-12-01T09:00:00Z", **send_fields}).expect(201)
    campaign_id = ours.api.post("/campaigns", {"name": "gone", **send_fields}).expect(201)["id"]
    ours.api.put("/brand", {"physical_address": "4 Mill Lane"}).expect(200)
    ours.api.post(f"/campaigns/{campaign_id}/send").expect(200)
    ours.api.post("/campaigns", {"name": "text", "channel": "sms"}).expect(201)
    new_ids = {}
    for where, account in (("ours", ours.account), ("theirs", theirs.account)):
        command = ("user", "add", "--email", f"they@{where}.example", "--role", "viewer", "--account", str(account))
        new_ids[where] = len(new_ids) + 2
        server.cli(*command, stdin=f"{PASSWORD}\n")
    return new_ids


def _crawl(visitor: Visitor) -> dict[str, tuple[int, Offers]]:
    """Return status and offers of one page of each kind that links lead to."""
    waiting, known, seen = ["/"], dict[str, set[str]](), dict[str, tuple[int, Offers]]()
    while waiting:
        path = waiting.pop(0)
        place, _, query = path.partition("?")
        # Campaigns and flows differ by their state, so each is visited; with `--full` the pages below it too
        is_own_kind = re.match(r"/(campaigns|flows)/" + ("" if is_full else r"\d+$"), place)
        kind = place if is_own_kind else re.sub(r"\d+", "1", place)
        # Each query parameter once, not in all combinations
        parameters = {parameter.partition("=")[0] for parameter in query.split("&")}
        # The documentation is for everybody, and `test_docs` follows its links
        if parameters <= known.get(kind, set()) or place.startswith(("/static/", "/m/", "/docs")):
            continue
        known.setdefault(kind, set()).update(parameters)
        response = visitor.send("GET", path)
        is_html = "text/html" in response.headers.get("content-type", "")
        seen[path] = response.status, Offers(response.text if is_html else "", path)
        waiting += sorted(seen[path][1].links)
    return seen


@pytest.mark.parametrize(("role", "where"), sampled(ROLES, [("author", "ours"), ("viewer", "theirs")]))
def test_pages_offer_only_allowed_actions(server: Server, user_ids: dict[str, int], role: str, where: str) -> None:
    """Links open, and the user's role allows each action of a page."""
    changed = Visitor(server, EMAIL).send("POST", f"/settings/team/{user_ids[where]}/role", {"role": role})
    assert changed.status == (303 if where == "ours" else 404)
    seen = _crawl(Visitor(server, f"they@{where}.example"))
    failed = {path: status for path, (status, _) in seen.items() if status >= 400}
    forbidden = {
        (path, action)
        for path, (_, offers) in seen.items()
        for action in offers.actions
        if action and not role_allows(role, "POST", action.partition("?")[0])
    }
    assert failed == {}
    assert forbidden == set()
    assert len(seen) > 30


def test_too_large_ids_are_not_found(server: Server, user_ids: dict[str, int]) -> None:
    """An id that exceeds the database's integers returns 404."""
    owner = Visitor(server, EMAIL)
    for number in (2**63 - 1, 2**63, 10**30):
        assert owner.send("GET", f"/contacts/{number}").status == 404
        assert owner.send("POST", f"/segments/{number}/delete", {}).status == 404


def test_a_new_key_is_shown_once(server: Server, user_ids: dict[str, int]) -> None:
    """A new API key is shown once on the page of keys, also if other pages were opened before."""
    owner = Visitor(server, EMAIL)
    assert owner.send("POST", "/settings/keys", {"name": "Shop", "scope": "full"}).status == 303
    for path in ("/settings/team", "/settings/webhooks", "/settings/webhooks/1"):
        assert owner.send("GET", path).status == 200
    shown = ["Shown once" in owner.send("GET", "/settings/keys").text for _ in range(2)]
    assert shown == [True, False]
