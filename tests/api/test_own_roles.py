"""Own roles and invitations: rights, live changes, and no way to more rights (docs/decisions.md#34)."""

import json
from typing import Any

from tests.api.test_threats_pages import Visitor
from tests.kit.api_users import user_client
from tests.kit.client import Client
from tests.kit.connected_app import ConnectedApp
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server
from tests.kit.uploads import multipart_form

DESIGNER = {"name": "Designer", "scopes": ["templates:write", "campaigns:read"], "contact_data": "full"}
SENDER = ["campaigns:send", "campaigns:write", "contacts:read", "flows:write"]


def add(server: Server, owner: Client, name: str, scopes: list[str], contact_data: str = "full") -> tuple[int, Client]:
    """Create a role and a user who has it, and return the role's id and the user's client."""
    role = owner.post("/roles", {"name": name, "scopes": scopes, "contact_data": contact_data}).expect(201)
    email = f"{name.lower()}@example.org"
    owner.post("/users", {"email": email, "role": str(role["id"]), "password": PASSWORD}).expect(201)
    return int(role["id"]), user_client(server, email)


def test_a_role_is_created_changed_and_deleted(server: Server, owner: Client) -> None:
    """A scope includes seeing its area; the name is unique; a role in use is deleted with a replacement only."""
    role = owner.post("/roles", DESIGNER).expect(201)
    path = f"/roles/{role['id']}"
    # Without contacts, no contact data is shown in full, whatever the role says.
    assert role["scopes"] == ["account:read", "campaigns:read", "templates:read", "templates:write"]
    assert owner.get(path).expect(200) == role and role in owner.get("/roles").expect(200)
    assert owner.post("/roles", {**DESIGNER, "name": " designer"}).expect(422)["validation_errors"] == {
        "name": ["has already been taken"]
    }
    owner.post("/users", {"email": "dee@example.org", "role": "designer", "password": PASSWORD}).expect(201)
    [user] = [row for row in owner.all("/users") if row["email"] == "dee@example.org"]
    assert user["role"] == str(role["id"]) and user["role_name"] == "Designer"
    assert [row["id"] for row in owner.get("/users", role="Designer").expect(200)] == [user["id"]]
    assert owner.get(path).expect(200)["user_count"] == 1
    assert owner.delete(path).expect(422)["validation_errors"] == {
        "replacement": ["is required, because the role is in use"]
    }
    for wrong in ("nobody", str(role["id"])):
        assert list(owner.delete(path, replacement=wrong).expect(422)["validation_errors"]) == ["replacement"]
    owner.delete(path, replacement="author").expect(200)
    assert owner.get(path).status == 404 and owner.get(f"/users/{user['id']}").expect(200)["role"] == "author"
    actions = {row["action"] for row in owner.get("/audit").expect(200)}
    assert {"role_create", "role_delete", "user_role"} <= actions


def test_wrong_roles_are_rejected_with_all_errors(owner: Client) -> None:
    """Unknown scopes, those of owners and admins, reserved names, and masked data with rights that need it in full."""
    errors = owner.post("/roles", {"name": "Owner", "scopes": ["admin"], "contact_data": "some"}).expect(422)
    assert sorted(errors["validation_errors"]) == ["contact_data", "name", "scopes"]
    for scopes in (["admin"], ["self"], ["contacts:full"], ["segments:write"], ["proposals:write"], ["full"], []):
        assert list(owner.post("/roles", {"name": "x", "scopes": scopes}).expect(422)["validation_errors"]) == [
            "scopes"
        ]
    for name in ("admin", "VIEWER", "12"):
        body = {"name": name, "scopes": ["flows:read"]}
        assert owner.post("/roles", body).expect(422)["validation_errors"] == {"name": ["is reserved"]}
    needy = ("contacts:write", "contacts:export", "events:write", "account:write", "messages:send", "campaigns:send")
    for scope in (*needy, "campaigns:approve"):
        body = {"name": "x", "scopes": [scope, "contacts:read"], "contact_data": "masked"}
        assert list(owner.post("/roles", body).expect(422)["validation_errors"]) == ["contact_data"]
    body = {"name": "x", "scopes": ["campaigns:send"]}
    assert list(owner.post("/roles", body).expect(422)["validation_errors"]) == ["scopes"]


def test_a_change_applies_at_once_to_sessions_tokens_and_apps(server: Server, owner: Client) -> None:
    """A right that a role loses is lost in a cookie, a token and an app that the user connected."""
    number, program = add(server, owner, "Builder", ["templates:write", "campaigns:write", "contacts:read"])
    page = Visitor(server, "builder@example.org")
    app = ConnectedApp(server.url).connect(
        ScriptlessBrowser(server.client(), "builder@example.org"), scope="templates:write campaigns:write"
    )

    def try_writes() -> list[bool]:
        body = {"name": "Try", "subject": "x", "body": "x"}
        statuses = (page.send("POST", "/templates/acts", {"act": "delete"}).status,
                    program.post("/templates", body).status, app.api().post("/templates", body).status)  # fmt: skip
        return [status != 403 for status in statuses]

    assert try_writes() == [True] * 3
    owner.patch(f"/roles/{number}", {"scopes": ["templates:read", "campaigns:write"]}).expect(200)
    assert try_writes() == [False] * 3
    # Without contacts, data is masked at once; the app keeps the other right.
    assert (program.get("/contacts").status, page.send("GET", "/contacts").status) == (403, 403)
    assert app.api().post("/campaigns", {"name": "Still"}).status == 201
    owner.patch(f"/roles/{number}", {"scopes": ["templates:write"]}).expect(200)
    assert try_writes() == [True] * 3 and app.api().post("/campaigns", {"name": "No"}).status == 403


def test_pages_follow_the_rights(server: Server, owner: Client) -> None:
    """A page outside of the rights is closed and not in the navigation; the first page that is open replaces Home."""
    add(server, owner, "Painter", ["templates:write"])
    page = Visitor(server, "painter@example.org")
    open_paths = ("/templates", "/brand", "/settings", "/settings/you")
    closed_paths = (
        "/contacts", "/lists", "/segments", "/campaigns", "/flows", "/activity", "/inbox", "/outbox",
        "/settings/domains",
        "/settings/team", "/settings/roles", "/settings/keys", "/settings/audit", "/exports/contacts", "/proposals",
        "/contacts/imports",
    )  # fmt: skip
    assert {path: page.send("GET", path).status for path in open_paths} == dict.fromkeys(open_paths, 200)
    assert {path: page.send("GET", path).status for path in closed_paths} == dict.fromkeys(closed_paths, 403)
    assert page.send("GET", "/").headers["location"] == "/templates"
    text = page.send("GET", "/templates").text
    assert 'href="/contacts"' not in text and 'href="/campaigns"' not in text and 'href="/brand"' in text
    assert page.send("GET", "/jump?q=team").text.count("/settings/team") == 0


def test_nobody_gets_more_rights(server: Server, owner: Client) -> None:
    """A user with all scopes of own roles can neither change roles, users and keys nor approve beyond the role."""
    every = sorted(
        {f"{area}:write" for area in ("contacts", "templates", "events", "domains", "account", "flows", "campaigns")}
        | {"campaigns:send", "campaigns:approve", "messages:send", "contacts:export"}
    )
    number, user = add(server, owner, "Everything", every)
    page = Visitor(server, "everything@example.org")
    own_id = user.get("/user").expect(200)["id"]
    attempts: list[tuple[str, str, Any]] = [
        ("PATCH", f"/roles/{number}", {"scopes": [*every, "admin"]}), ("POST", "/roles", DESIGNER | {"name": "Mine"}),
        ("DELETE", f"/roles/{number}", None), ("PATCH", f"/users/{own_id}", {"role": "owner"}),
        ("POST", "/users", {"email": "x@example.org", "role": "owner"}), ("POST", "/api_keys", {"name": "Mine"}),
        ("POST", "/invitations", {"email": "x@example.org", "role": "owner"}), ("GET", "/invitations", None),
        ("GET", "/roles", None), ("GET", "/audit", None), ("POST", "/agents/stop", None),
    ]  # fmt: skip
    for method, path, body in attempts:
        assert user.send(method, path, body).expect(403)["required_role"] == "admin", (method, path)
    posts = {
        f"/settings/roles/{number}": {"name": "x", "scopes": "flows:write"}, "/settings/roles": {"name": "y"},
        f"/settings/roles/{number}/delete": {}, f"/settings/team/{own_id}/role": {"role": "owner"},
        "/settings/team": {"email": "x@example.org", "role": "owner"}, "/settings/keys": {"name": "x", "scope": "full"},
        "/settings/team/1/password": {}, "/settings/backups/create": {}, "/settings/backups/store": {},
    }  # fmt: skip
    assert {path: page.send("POST", path, form).status for path, form in posts.items()} == dict.fromkeys(posts, 403)
    # An admin gives no role of an owner, and a deleted role makes no owners.
    owner.post("/users", {"email": "ada@example.org", "role": "admin", "password": PASSWORD}).expect(201)
    ada = user_client(server, "ada@example.org")
    assert ada.delete(f"/roles/{number}", replacement="owner").expect(403)["required_role"] == "owner"
    assert ada.get(f"/roles/{number}").expect(200)["user_count"] == 1
    [first] = [row for row in owner.all("/users") if row["role"] == "owner"]
    refused = owner.patch(f"/users/{first['id']}", {"role": str(number)}).expect(422)
    assert refused["validation_errors"] == {"role": ["would leave the account without an owner"]}


def test_an_approved_proposal_needs_the_right_to_make_the_change(server: Server, api: Client, owner: Client) -> None:
    """A user who may send, but not change contacts, cannot approve the change of a segment."""
    _, sender = add(server, owner, "Sender", SENDER)
    segment = api.post("/segments", {"name": "Regulars"}).expect(201)["id"]
    proposal = {"kind": "change_segment", "subject_id": segment, "changes": {"name": "Changed"}}
    number = api.post("/proposals", proposal).expect(201)["id"]
    version = sender.get(f"/proposals/{number}").expect(200)["version"]
    refused = sender.post(f"/proposals/{number}/approve", {"version": version}).expect(403)
    assert refused["required_scope"] == "contacts:write"
    assert api.get(f"/segments/{segment}").expect(200)["name"] == "Regulars"


def test_a_role_of_another_account_is_unknown(server: Server, owner: Client) -> None:
    """Neither its id nor its name gives a right in another account, and it cannot be read or changed there."""
    number = owner.post("/roles", {"name": "Ours", "scopes": ["flows:read"]}).expect(201)["id"]
    other = int(server.cli("account", "add", "Elsewhere").stdout)
    server.cli("user", "add", "--email", "else@example.org", "--account", str(other), stdin=f"{PASSWORD}\n")
    stranger = user_client(server, "else@example.org")
    for method, body in (("GET", None), ("PATCH", {"name": "x"}), ("DELETE", None)):
        assert stranger.send(method, f"/roles/{number}", body).status == 404
    assert stranger.get("/roles").expect(200) == []
    for role in (str(number), "Ours"):
        for path in ("/users", "/invitations"):
            errors = stranger.post(path, {"email": "new@example.org", "role": role}).expect(422)["validation_errors"]
            assert errors == {"role": ["is not included in the list"]}
    refused = server.cli(
        "user", "add", "--email", "cli@example.org", "--role", "Ours", "--account", str(other),
        stdin=f"{PASSWORD}\n", expect=None,
    )  # fmt: skip
    assert refused.returncode != 0 and "role" in refused.stderr
    server.cli("user", "add", "--email", "cli@example.org", "--role", "ours", stdin=f"{PASSWORD}\n")
    assert user_client(server, "cli@example.org").get("/user").expect(200)["role"] == str(number)


def test_exports_need_their_right(server: Server, owner: Client) -> None:
    """Without `contacts:export`, a user who sees contacts downloads none, in no way."""
    number, user = add(server, owner, "Reader", ["contacts:read", "flows:read", "messages:read"])
    page, contact = Visitor(server, "reader@example.org"), owner.post("/contacts", {"email": "a@example.org"})
    paths = (
        "/exports/contacts.csv", "/exports/contacts.jsonl", "/exports/events.csv", "/exports/messages.jsonl",
        f"/contacts/{contact.expect(201)['id']}/export",
    )  # fmt: skip
    for path in paths:
        assert user.get(path).expect(403)["required_scope"] == "contacts:export", path
    assert page.send("GET", "/exports/contacts").status == page.send("GET", "/exports/contacts/file").status == 403
    owner.patch(f"/roles/{number}", {"scopes": ["contacts:export", "flows:read"]}).expect(200)
    assert [user.get(path).status for path in paths] == [200] * len(paths)


def test_a_masked_role_cannot_ask_for_names_and_addresses(server: Server, owner: Client) -> None:
    """Searches and filters on names and addresses are closed; counts of saved segments stay right."""
    owner.post("/contacts", {"email": "mara@hidden.example", "first_name": "Mara"}).expect(201)
    rule = {"name": "contact_email", "predicate": "cont", "value": "hidden"}
    segment = owner.post("/segments", {"name": "Hidden", "filters": [rule]}).expect(201)["id"]
    _, user = add(server, owner, "Agency", ["contacts:read", "flows:write", "campaigns:write"], "masked")
    page = Visitor(server, "agency@example.org")
    assert user.get("/contacts/search", q="mara").status == user.get("/contacts", search="mara").status == 403
    assert page.send("GET", "/contacts?search=mara").status == 403
    row = user.get(f"/segments/{segment}").expect(200)
    assert row["contacts_count"] == 1 and row["filters"] == [{**rule, "value": "•••"}]
    group = {"name": "group", "predicate": "all", "value": [rule]}
    for name in ("email", "contact_first_name", "phone"):
        group["value"] = [{**rule, "name": name}]
        assert user.post("/segments/count", {"filters": [group]}).status == 403
    # So are parts and bounds of custom data, which can be an address or a phone number; whole values and days are not
    for name, predicate, value, status in (
        ("data.street", "start", "Elm", 403), ("contact_data.street", "not_cont", "Elm", 403),
        ("data.mobile", "gteq", 14_155_000_000, 403), ("data.street", "between", ["a", "m"], 403),
        ("data.street", "eq", "Elm Street 1", 200), ("data.seats", "gt", 5, 200), ("data.kind", "cont", "vip", 200),
        ("data.renews", "lt", "2027-01-31", 200), ("data.street", "present", True, 200),
    ):  # fmt: skip
        filters = [{"name": name, "predicate": predicate, "value": value}]
        assert user.post("/segments/count", {"filters": filters}).status == status, (name, predicate)
        where = [{**filters[0], "name": f"event.{name.rpartition('.')[2]}"}]
        filters = [{"name": "event", "predicate": "performed", "value": {"event": "order", "where": where}}]
        assert user.post("/segments/count", {"filters": filters}).status == status, (name, predicate)
    body = {"name": "Ask", "steps": [{"filters": [rule], "yes": []}]}
    assert user.post("/flows", body).status == 403
    assert page.send("GET", "/jump?q=mara").status == 200 and "Mara" not in page.send("GET", "/jump?q=mara").text


def test_sections_of_emails_do_not_tell_what_is_masked(server: Server, owner: Client) -> None:
    """Whoever previews an email with a contact could else read an address by sections for more and more letters."""
    contact = owner.post("/contacts", {"email": "zora@secluded.example", "first_name": "Zora"}).expect(201)["id"]
    _, user = add(server, owner, "Studio", ["contacts:read", "templates:write", "campaigns:write"], "masked")
    page = Visitor(server, "studio@example.org")
    section = {"id": "asked", "type": "text", "props": {"html": "<p>Shown</p>"}}
    number = user.post("/templates", {"name": "Ask", "design": {"sections": [section]}}).expect(201)["id"]
    for value in ("zora", "other"):
        rules = [{"name": "contact_email", "predicate": "cont", "value": value}]
        design = {"sections": [{**section, "props": {**section["props"], "show_if": rules}}]}
        saved = page.send("POST", f"/templates/{number}/sections/asked", {"props.show_if": json.dumps(rules)})
        assert saved.status == 403
        for path in (f"/templates/{number}/design", "/templates/import"):
            body, kind = multipart_form(json.dumps(design).encode(), "design.json")
            headers = {"Cookie": page.cookie, "Sec-Fetch-Site": "same-origin", "Content-Type": kind}
            assert page.api.request("POST", path, body, headers).status == 403, path
        # Those of other users are met by all, as in a preview without a contact
        owner.patch(f"/templates/{number}", {"design": design}).expect(200)
        for path in (f"/templates/{number}/canvas?as={contact}", f"/templates/{number}/rows?as={contact}"):
            assert "Shown" in page.send("GET", path).text, (path, value)


def test_flows_do_not_tell_what_is_masked(server: Server, owner: Client) -> None:
    """A split by a name takes no filter, and its branches in a replay would say whose name it is."""
    _, user = add(server, owner, "Flows", ["contacts:read", "flows:write"], "masked")
    page = Visitor(server, "flows@example.org")
    steps = [{"type": "split_value", "field": "first_name", "branches": [{"values": ["Zora", "Ute"], "steps": []}]}]
    body = {"name": "By name", "trigger": {"event": "order"}, "steps": steps}
    number = owner.post("/flows", body).expect(201)["id"]
    assert "Zora" not in str(user.get(f"/flows/{number}").expect(200))
    step = owner.get(f"/flows/{number}").expect(200)["steps"][0]["id"]
    for path in (f"/flows/{number}", f"/flows/{number}?step={step}", f"/flows/{number}/try"):
        shown = page.send("GET", path)
        assert shown.status == 200 and "First name" in shown.text and "Zora" not in shown.text, path
    form = {"kind": "split_value", "at": "start", "ready": "1", "field": "first_name", "branches_0_values": "Zora"}
    assert user.post("/flows", body).status == page.send("POST", f"/flows/{number}/steps", form).status == 403
    assert page.send("POST", f"/flows/{number}/steps/{step}", form).status == 403
    for method in ("GET", "POST"):
        assert page.send(method, f"/flows/{number}/replay").status == 403
    assert page.send("POST", f"/flows/{number}/replay/cancel").status == 403


def test_invitations(server: Server, owner: Client) -> None:
    """The capture transport delivers no invitation, so the API sends none; wrong ones are rejected with all errors."""
    role = owner.post("/roles", {"name": "Guest", "scopes": ["campaigns:read"]}).expect(201)["id"]
    errors = owner.post("/invitations", {"email": "no address", "role": "nobody", "days": 31}).expect(422)
    assert sorted(errors["validation_errors"]) == ["days", "email", "role"]
    refused = owner.post("/invitations", {"email": "guest@example.org", "role": "Guest", "days": 2}).expect(409)
    assert "cannot send email" in refused["message"] and owner.get("/invitations").expect(200) == []
    page = Visitor(server, "owner@example.com")
    form = {"email": "guest@example.org", "role": str(role), "days": "2"}
    assert page.send("POST", "/settings/team", form).status == 303
    [invitation] = owner.get("/invitations").expect(200)
    assert (invitation["email"], invitation["role"], invitation["state"]) == ("guest@example.org", str(role), "pending")
    text = page.send("GET", "/settings/team").text
    link = text.partition("/invitations/")[2].partition('"')[0]
    assert owner.delete(f"/roles/{role}").status == 422  # in use by the invitation
    accepted = page.send("POST", f"/invitations/{link}", {"name": "Gus", "password": PASSWORD, "language": "en"})
    assert accepted.status == 303 and owner.get("/invitations").expect(200) == []
    assert user_client(server, "guest@example.org").get("/user").expect(200)["role"] == str(role)
    assert owner.delete(f"/invitations/{invitation['id']}").status == 404
