"""No page offers what it would refuse: of every page, each button and link is one that this person may use."""

import re
from html.parser import HTMLParser

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.page_scopes import allows
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.tenants import two_tenants

# Roles in an account with one of everything, and who sees the least of it in one with nothing
WHO = (("author", "ours"), ("editor", "ours"), ("viewer", "ours"), ("viewer", "theirs"))


class Offers(HTMLParser):
    """Where the links of a page lead, and what its forms and buttons that can be pressed would send."""

    def __init__(self, page: str, path: str) -> None:
        super().__init__()
        self.links, self.acts = set[str](), set[str]()
        self._path, self._form, self._off = path.partition("?")[0], "", list[bool]()
        self._named, self._late = dict[str, str](), list[str]()
        self.feed(page)
        self.acts |= {self._named[name] for name in self._late if name in self._named}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link, a form, or a button that is not disabled."""
        has = {name: value or "" for name, value in attrs}
        if tag == "fieldset":
            self._off.append("disabled" in has)
        self.links |= {link for name in ("href", "hx-get") if (link := has.get(name, "")).startswith("/")}
        if tag == "form":
            self._form = (has.get("action") or self._path) if has.get("method") == "post" else ""
            self._named[has.get("id", "")] = self._form
        off = any(self._off) or "disabled" in has
        if "hx-trigger" in has and "hx-post" in has and not off:
            self.acts.add(has["hx-post"])
        if tag == "button" and has.get("type", "submit") == "submit" and not off:
            self.acts.add(has.get("hx-post") or has.get("formaction") or self._form)
            self._late += [has["form"]] if "form" in has else []

    def handle_endtag(self, tag: str) -> None:
        """Leave a form or a group of fields."""
        if tag == "form":
            self._form = ""
        if tag == "fieldset" and self._off:
            self._off.pop()


@pytest.fixture(scope="module")
def two(server: Server) -> dict[str, int]:
    """An account with one of everything and one that is empty; the id of who looks at each."""
    ours, theirs = two_tenants(server)
    group = ours.things["lists"]
    ours.api.post("/contacts", {"email": "z@example.org", "phone": "+14155551999", "opt_in": True})
    sent = {"trigger_attributes": {"contact_list_id": group}, "template_attributes": {"subject": "s", "body": "<p>x"}}
    ours.api.post("/campaigns", {"name": "later", "scheduled_at": "2099-12-01T09:00:00Z", **sent}).expect(201)
    gone = ours.api.post("/campaigns", {"name": "gone", **sent}).expect(201)["id"]
    ours.api.put("/brand", {"physical_address": "4 Mill Lane"}).expect(200)
    ours.api.post(f"/campaigns/{gone}/send").expect(200)
    ours.api.post("/campaigns", {"name": "text", "channel": "sms"}).expect(201)
    people = {}
    for where, account in (("ours", ours.account), ("theirs", theirs.account)):
        words = ("user", "add", "--email", f"they@{where}.example", "--role", "viewer", "--account", str(account))
        people[where] = len(people) + 2
        server.cli(*words, stdin=f"{PASSWORD}\n")
    return people


def _crawl(visitor: Visitor) -> dict[str, tuple[int, Offers]]:
    """Return the status and the offers of one page of each kind that links lead to, read once."""
    waiting, known, seen = ["/"], dict[str, set[str]](), dict[str, tuple[int, Offers]]()
    while waiting:
        path = waiting.pop(0)
        place, _, query = path.partition("?")
        # Several things of a kind differ by where they stand
        kind = place if place.startswith(("/campaigns/", "/flows/")) else re.sub(r"\d+", "1", place)
        # Each word of a query once, not with each other word
        words = {one.partition("=")[0] for one in query.split("&")}
        if words <= known.get(kind, set()) or place.startswith(("/static/", "/m/")):
            continue
        known.setdefault(kind, set()).update(words)
        answer = visitor.send("GET", path)
        html = "text/html" in answer.headers.get("content-type", "")
        seen[path] = answer.status, Offers(answer.text if html else "", path)
        waiting += sorted(seen[path][1].links)
    return seen


@pytest.mark.parametrize(("role", "where"), WHO)
def test_nobody_is_offered_what_is_refused(server: Server, two: dict[str, int], role: str, where: str) -> None:
    """Links lead to pages that open, and what can be pressed may be done; no page of any kind breaks."""
    changed = Visitor(server, EMAIL).send("POST", f"/settings/team/{two[where]}/role", {"role": role})
    assert changed.status == (303 if where == "ours" else 404)
    seen = _crawl(Visitor(server, f"they@{where}.example"))
    closed = {path: status for path, (status, _) in seen.items() if status >= 400}
    refused = {
        (path, act)
        for path, (_, offers) in seen.items()
        for act in offers.acts
        if act and not allows(role, "POST", act.partition("?")[0])
    }
    assert closed == {}
    assert refused == set()
    assert len(seen) > 30


def test_an_id_that_no_id_can_be_is_nothing(server: Server, two: dict[str, int]) -> None:
    """A number too large for an id is told as a thing that is not there."""
    owner = Visitor(server, EMAIL)
    for number in (2**63 - 1, 2**63, 10**30):
        assert owner.send("GET", f"/contacts/{number}").status == 404
        assert owner.send("POST", f"/segments/{number}/delete", {}).status == 404


def test_a_secret_waits_for_the_page_that_shows_it(server: Server, two: dict[str, int]) -> None:
    """Who makes a key and looks at another page first, in another tab, sees the key afterwards, once."""
    owner = Visitor(server, EMAIL)
    assert owner.send("POST", "/settings/keys", {"name": "Shop", "scope": "full"}).status == 303
    for path in ("/settings/team", "/settings/webhooks", "/settings/webhooks/1"):
        assert owner.send("GET", path).status == 200
    shown = ["Shown once" in owner.send("GET", "/settings/keys").text for _ in range(2)]
    assert shown == [True, False]
