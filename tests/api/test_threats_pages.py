"""Pages of two accounts: an id of another account is treated as unknown (T09).

The tests read the routes of the web interface: a page with an unknown kind of id fails them.
"""

import re
from urllib.parse import urlencode

import pytest

from tests.kit.api_users import user_client
from tests.kit.client import Client, Response
from tests.kit.pictures import encode_image, photo
from tests.kit.routes import page_routes
from tests.kit.server import PASSWORD, Server
from tests.kit.tenants import MISSING_ID, Tenant, two_tenants
from tests.kit.uploads import upload_image

KINDS = {
    "campaign_id": "campaigns", "template_id": "templates", "contact_id": "contacts", "list_id": "lists",
    "captured_id": "captured", "domain_id": "domains", "suppression_id": "suppressions", "picture_id": "pictures",
    "form_id": "forms", "message_id": "messages", "segment_id": "segments", "import_id": "imports", "act_id": "acts",
    "flow_id": "flows", "step_id": "steps", "run_id": "runs", "user_id": "users", "key_id": "keys",
    "webhook_id": "webhooks", "incoming_id": "incoming", "session_id": "sessions", "side": "sides",
    "proposal_id": "proposals", "invitation_id": "invitations", "file_id": "files", "number": "variants",
    "app_id": "apps", "passkey_id": "passkeys", "role_id": "roles", "provider_id": "providers",
}  # fmt: skip
# What somebody enters who accepts an invitation
JOIN = {"name": "taken", "password": PASSWORD, "language": "en"}
_ID = re.compile(r"<(\w+):int>")
# Form fields for every page; a page reads those that it has
FORM = {
    "name": "taken", "first_name": "taken", "email": "taken@example.org", "subject": "taken", "body": "taken",
    "reason": "taken", "channel": "1", "subscribed": "no", "when": "now", "text": "taken",
    "act": "tag_add", "tag": "taken", "props.text": "taken", "email.subject": "taken", "kind": "text", "way": "up",
    "role": "viewer",
}  # fmt: skip


class Visitor:
    """A signed-in user without a browser."""

    def __init__(self, server: Server, email: str) -> None:
        self.api = Client(server.url, validate=False)
        response = self.send("POST", "/login", {"email": email, "password": PASSWORD})
        assert response.status == 303, response.text
        self.cookie = str(response.headers["set-cookie"]).partition(";")[0]

    def send(self, method: str, path: str, form: dict[str, object] | None = None) -> Response:
        """Request a page, or post a form, as from a page of the same site."""
        headers = {"Cookie": getattr(self, "cookie", ""), "Sec-Fetch-Site": "same-origin"}
        body = None
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = urlencode(form or {}, doseq=True).encode()
        return self.api.request(method, path, body, headers)


@pytest.fixture(scope="module")
def both(server: Server) -> tuple[Tenant, Visitor, Visitor, Tenant]:
    """Return account A with its owner, and the empty account B with its owner, as (A, owner, other owner, B)."""
    ours, theirs = two_tenants(server)
    server.cli("user", "add", "--email", "b@example.com", "--account", str(theirs.account), stdin=f"{PASSWORD}\n")
    owner = Visitor(server, "owner@example.com")
    result = re.search(r'href="/inbox/(\d+)"', owner.send("GET", "/inbox").text)
    assert result is not None
    ours.object_ids["captured"] = int(result[1])
    ours.object_ids["users"] = ours.object_ids["keys"] = ours.object_ids["sessions"] = 1
    ours.object_ids["steps"] = 2
    ours.object_ids["sides"] = 480  # pixels
    ours.object_ids["variants"] = 2
    upload_image(ours.api, encode_image(photo(), "PNG"), "alpha picture").expect(201)
    shown = re.search(r'href="/templates/pictures/(\d+)"', owner.send("GET", "/templates/pictures").text)
    assert shown is not None
    ours.object_ids["pictures"] = int(shown[1])
    owner.send("POST", "/contacts/acts", {"act": "tag_remove", "tag": "alpha", "ids": ours.object_ids["contacts"]})
    ours.object_ids["acts"] = 1
    person = user_client(server)
    ours.object_ids["roles"] = person.post("/roles", {"name": "Agency", "scopes": ["flows:read"]}).expect(201)["id"]
    provider = {"name": "Alpha", "issuer": "https://idp.example", "client_id": "alpha"}
    ours.object_ids["providers"] = person.post("/sign_in_providers", provider).expect(201)["id"]
    return ours, owner, Visitor(server, "b@example.com"), theirs


def invite(visitor: Visitor, email: str) -> str:
    """Invite an address to a visitor's team, and return the path of the link, which the next page shows once."""
    assert visitor.send("POST", "/settings/team", {"email": email, "role": "viewer"}).status == 303
    match = re.search(r'value="[^"]*(/invitations/\d+/[^"/]+)"', visitor.send("GET", "/settings/team").text)
    assert match is not None
    return match[1]


def with_id(path: str, things: dict[str, int] | None) -> str:
    """Return a path with the id of an object, or with an unknown id."""
    path = path.replace("<key:str>", "title").replace("<side:int>", "480").replace("<column:int>", "1")
    path = path.replace("<language:str>", "de")
    return _ID.sub(lambda match: str(things[KINDS[match[1]]] if things else MISSING_ID), path)


def without_path(answer: Response, path: str) -> str:
    """Return the text of a page without the requested path."""
    return answer.text.replace(path, "<path>")


def test_pages_of_another_account_are_unknown(both: tuple[Tenant, Visitor, Visitor, Tenant], full: bool) -> None:
    """Every page and action with an id of A is the same 404 for B as an unknown id, and A's objects are unchanged.

    Every page is a 404, and a third of them is compared with that of an unknown id, all with `--full`.
    """
    ours, owner, stranger, _ = both
    ours.api.put(f"/templates/{ours.object_ids['templates']}/translations/de", {"texts": {}}).expect(200)
    invite(owner, "invited@example.org")
    # Apps of other users are tried in test_connected_apps.py.
    ours.object_ids["invitations"] = ours.object_ids["files"] = ours.object_ids["apps"] = 1
    before = ours.read_all()
    walked, opened = 0, set[frozenset[str]]()
    for method, path in page_routes():
        # The link of an invitation is open to whoever has its token; the test below requests it with wrong tokens, and
        # the way through a provider leads there.
        # The rules for sending belong to the installation; only its first account may see them. Passkeys of other
        # users are tried in test_passkeys.py, identities in tests/oidc, and accounts in test_account_limits.py.
        own_places = (
            "/invitations/", "/login/oidc/", "/settings/sending/rules/", "/settings/you/passkeys/",
            "/settings/you/identities/", "/settings/accounts/",
        )  # fmt: skip
        if not _ID.search(path) or path.startswith(own_places):
            continue
        known, never = with_id(path, ours.object_ids), with_id(path, None)
        is_compared = full or walked % 3 == 0
        for form in ({}, FORM) if method == "POST" and is_compared else (FORM,):
            got = stranger.send(method, known, form)
            # An empty form may be rejected before the id is looked up
            assert got.status in ((404,) if form else (404, 422)) and "alpha" not in got.text, (method, path)
            if is_compared:
                none = stranger.send(method, never, form)
                assert got.status == none.status, (method, path)
                assert without_path(got, known) == without_path(none, never), (method, path)
            walked += 1
        kinds = frozenset(_ID.findall(path))
        if method == "GET" and (full or kinds not in opened):
            # The ids are those of objects
            assert owner.send(method, known).status in (200, 303), path
            opened.add(kinds)
    assert walked >= 60
    assert ours.read_all() == before


def test_an_invitation_needs_its_own_token(both: tuple[Tenant, Visitor, Visitor, Tenant]) -> None:
    """An invitation of A is the same 410 for B as an unknown one, with a made-up token as with one of B's own."""
    ours, owner, stranger, _ = both
    right = invite(owner, "second@example.org")
    wrong = invite(stranger, "theirs@example.org")
    before = ours.read_all()
    invitation_id, token = right.rpartition("/")[0].rpartition("/")[2], wrong.rpartition("/")[2]
    for other_token in ("made-up", token, f"{right.rpartition('/')[2]}x"):
        path, unknown = f"/invitations/{invitation_id}/{other_token}", f"/invitations/{MISSING_ID}/{other_token}"
        for method in ("GET", "POST"):
            refusal, other = stranger.send(method, path, JOIN), stranger.send(method, unknown, JOIN)
            assert refusal.status == other.status == 410, (method, path)
            assert without_path(refusal, path) == without_path(other, unknown), (method, path)
            assert "alpha" not in refusal.text and "second@example.org" not in refusal.text
    assert ours.read_all() == before
    assert stranger.send("GET", right).status == 200


def test_pages_without_an_id_show_nothing_of_another_account(both: tuple[Tenant, Visitor, Visitor, Tenant]) -> None:
    """No list, search or overview of B contains an object of A."""
    _, owner, stranger, _ = both
    seen = ""
    for method, path in page_routes():
        if method != "GET" or "<" in path or path.startswith("/docs"):
            continue
        for query in ("", "?search=alpha&q=alpha"):
            page = stranger.send("GET", path + query)
            text = page.body.decode("utf-8", "replace")  # also of files
            shown = text.replace('value="alpha"', "").replace("“alpha”", "").replace("search=alpha", "")
            assert not re.search(r"alpha (list|template|campaign|segment|letter|picture)|alpha@", shown), path + query
    for path in ("/lists", "/templates", "/campaigns", "/templates/pictures", "/contacts"):
        seen += owner.send("GET", path).text
    words = ("alpha list", "alpha template", "alpha campaign", "alpha picture", "alpha@example.org")
    assert all(word in seen for word in words)


def test_only_the_first_account_sees_the_data_directory(
    server: Server, both: tuple[Tenant, Visitor, Visitor, Tenant]
) -> None:
    """Owners of other accounts see neither path nor size of the data, and cannot create a backup."""
    _, owner, stranger, _ = both
    pages = [visitor.send("GET", "/settings/data").text for visitor in (owner, stranger)]
    assert [str(server.data) in page for page in pages] == [True, False]
    assert ["<dt>Size</dt>" in page for page in pages] == [True, False]
    assert ["Open backups" in page for page in pages] == [True, False]
    assert stranger.send("POST", "/settings/backups/create").status == 403
    assert not (server.data / "backups").exists()


def test_forms_reject_objects_of_another_account(
    both: tuple[Tenant, Visitor, Visitor, Tenant],
) -> None:
    """A form of B with contacts or lists of A changes nothing."""
    ours, _, stranger, theirs = both
    list_id = theirs.api.post("/lists", {"name": "mine"}).expect(201)["id"]
    campaign = theirs.api.post("/campaigns", {"name": "mine"}).expect(201)["id"]
    before = ours.read_all()
    for act in ("people", "people/remove"):
        stranger.send("POST", f"/lists/{list_id}/{act}", {"contact_ids": ours.object_ids["contacts"]})
        assert theirs.api.get(f"/lists/{list_id}").json["contacts_count"] == 0
    response = stranger.send("POST", f"/campaigns/{campaign}/to", {"list": ours.object_ids["lists"]})
    assert response.status == 422
    assert theirs.api.get(f"/campaigns/{campaign}").json["trigger"]["contact_list_id"] is None
    person = {"email": "new@example.org", "list_ids": ours.object_ids["lists"], "opt_in": "yes"}
    assert stranger.send("POST", "/contacts", person).status == 422
    assert all(not row["list_ids"] for row in theirs.api.all("/contacts"))
    stranger.send("POST", "/inbox/clear", {})
    assert ours.read_all() == before
