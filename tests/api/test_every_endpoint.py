"""Rules that hold for every endpoint: ids in filters, clearing of texts, errors of scopes, and 404 for programs."""

from typing import Any

import pytest
from msgspec.structs import fields

from appliance.accounts.access import ROLES, SCOPES
from appliance.api.endpoints import Route
from appliance.api.routes import ROUTES
from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.tenants import MISSING_ID, Tenant, two_tenants

IDS = [
    (route, info.encode_name)
    for route in ROUTES if route.query_type is not None
    for info in fields(route.query_type) if info.encode_name.endswith("_id")
]  # fmt: skip
# The resource of each id parameter
NOUNS = {"contact_id": "contacts", "list_id": "lists", "segment_id": "segments", "campaign_id": "campaigns",
         "flow_id": "flows", "message_id": "messages", "event_id": "events"}  # fmt: skip


@pytest.fixture(scope="module")
def both(server: Server) -> tuple[Tenant, Tenant]:
    """Return an account with one object of every kind, and another account with a few objects."""
    mine, theirs = two_tenants(server)
    api, have = theirs.api, theirs.object_ids
    have["contacts"] = api.post("/contacts", {"email": "theirs@example.org"}).expect(201)["id"]
    have["lists"] = api.post("/lists", {"name": "Theirs"}).expect(201)["id"]
    have["segments"] = api.post("/segments", {"name": "Theirs"}).expect(201)["id"]
    have["campaigns"] = api.post("/campaigns", {"name": "Theirs"}).expect(201)["id"]
    have["flows"] = api.post("/flows", {"name": "Theirs"}).expect(201)["id"]
    letter = {"to": "theirs@example.org", "subject": "x", "body": "x"}
    have["messages"] = api.post("/messages", letter).expect(201)["id"]
    have["events"] = api.post("/events", {"event": "x", "contact_id": have["contacts"]}).expect(201)["id"]
    return mine, theirs


def test_all_id_parameters_are_known() -> None:
    """Every id parameter has a resource in `NOUNS`."""
    assert {name for _, name in IDS} == set(NOUNS) and len(IDS) >= 20


@pytest.mark.parametrize(("route", "name"), IDS, ids=lambda value: value if isinstance(value, str) else value.path)
def test_a_filter_by_an_unknown_id_is_an_error(route: Route, name: str, both: tuple[Tenant, Tenant]) -> None:
    """A filter by an id that does not exist or is another account's is a 422."""
    mine, theirs = both
    path = route.path.replace("{id}", str(mine.object_ids.get(route.path.strip("/").partition("/")[0])))
    noun = NOUNS[name]
    assert mine.api.get(path, **{name: mine.object_ids[noun]}).status == 200
    for number in (MISSING_ID, theirs.object_ids[noun]):
        if number != mine.object_ids[noun]:
            error = mine.api.get(path, **{name: number}).expect(422)
            assert error["validation_errors"] == {name: ["must exist"]}, number
    for number, words in ((0, "must be greater than or equal to 1"), ("x", "is not a number")):
        assert mine.api.get(path, **{name: number}).expect(422)["validation_errors"] == {name: [words]}


def test_messages_can_be_filtered_by_a_deleted_campaign(api: Client) -> None:
    """The filter by the id of a deleted campaign is valid."""
    campaign_id = api.post("/campaigns", {"name": "Gone"}).expect(201)["id"]
    api.delete(f"/campaigns/{campaign_id}").expect(200)
    assert api.get("/messages", campaign_id=campaign_id).expect(200) == []


# For each resource: the body that creates one, and its optional texts
CLEARED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "/contacts": ({}, {"first_name": "x", "last_name": "x", "source": "x", "country_code": "FR"}),
    "/templates": ({}, {"name": "x", "subject": "x", "body": "x", "preheader": "x", "from_name": "x",
                        "from_email": "a@example.org", "reply_to": "a@example.org"}),
    "/flows": ({}, {"goal": "x"}),
    "/forms": ({"name": "x"}, {"redirect_url": "https://example.org", "consent_text": "x"}),
}  # fmt: skip
ONE = {
    "PUT /brand": {"brand_color": "#aabbcc", "text_color": "#aabbcc", "bg_color": "#aabbcc", "font_heading": "x",
                   "font_body": "x", "style_notes": "x", "tone": "x", "company_description": "x", "industry": "x",
                   "physical_address": "x", "company_name": "x", "logo": "https://example.org/a.png"},
    "PATCH /account": {"email_from_name": "x", "email_from_email": "a@example.org", "email_reply_to": "a@example.org",
                       "sms_from": "+14155550123", "sms_opt_out_hint": "x"},
}  # fmt: skip


@pytest.mark.parametrize("empty", [None, ""], ids=["null", "empty"])
def test_null_and_an_empty_text_clear(api: Client, empty: str | None) -> None:
    """An absent text stays; null and "" clear it, for every resource."""
    cases = [(f"{path}/{api.post(path, least).expect(201)['id']}", "PATCH", texts)
             for path, (least, texts) in CLEARED.items() if path != "/contacts"]  # fmt: skip
    contact_id = api.post("/contacts", {"email": f"cleared{len(str(empty))}@example.org"}).expect(201)["id"]
    cases.append((f"/contacts/{contact_id}", "PATCH", CLEARED["/contacts"][1]))
    cases += [(name.partition(" ")[2], name.partition(" ")[0], texts) for name, texts in ONE.items()]
    for path, method, texts in cases:
        api.send(method, path, texts).expect(200)
        kept = api.send(method, path, {}).expect(200)
        assert all(kept[name] for name in texts), path
        cleared = api.send(method, path, dict.fromkeys(texts, empty)).expect(200)
        assert {name: cleared[name] for name in texts} == dict.fromkeys(texts), path


@pytest.mark.parametrize("empty", [None, ""], ids=["null", "empty"])
def test_an_empty_address_removes_the_channel(api: Client, empty: str | None) -> None:
    """Null and "" remove the email or phone of a contact."""
    address = f"away{len(str(empty))}@example.org"
    contact = api.post("/contacts", {"email": address, "phone": "+14155550166", "opt_in": False}).expect(201)
    assert [channel["kind"] for channel in contact["channels"]] == ["email", "phone"]
    left = api.patch(f"/contacts/{contact['id']}", {"email": empty}).expect(200)
    assert [channel["kind"] for channel in left["channels"]] == ["phone"]
    api.patch(f"/contacts/{contact['id']}", {"phone": empty}).expect(200)
    assert api.get(f"/contacts/{contact['id']}").expect(200)["channels"] == []


def test_required_names_cannot_be_cleared(api: Client) -> None:
    """A required name is rejected if it is empty or null."""
    for path in ("/lists", "/segments", "/campaigns", "/forms"):
        object_path = f"{path}/{api.post(path, {'name': f'Named {path}'}).expect(201)['id']}"
        for empty in (None, "", "  "):
            assert api.patch(object_path, {"name": empty}).expect(422)["validation_errors"] == {
                "name": ["can't be blank"]
            }


@pytest.fixture(scope="module")
def callers(server: Server, full: bool) -> list[Client]:
    """Return a client with a narrow scope and a viewer, with `--full` one of each role except owner."""
    results = [server.client(server.new_key("narrow", "--scope", "flows:read"))]

    def signed_in(email: str) -> Client:
        who = {"email": email, "password": PASSWORD}
        return server.client(server.client().post("/v1/login", who).expect(200)["token"])

    owner = signed_in(EMAIL)
    for role in ROLES[1:] if full else ("viewer",):
        email = f"{role}@example.com"
        owner.post("/users", {"email": email, "role": role, "password": PASSWORD}).expect(201)
        results.append(signed_in(email))
    return results


def test_403_names_the_missing_scope_or_role(callers: list[Client]) -> None:
    """A 403 names a scope that a key can have, or else the lowest role, also in its message."""
    seen = set()
    for caller in callers:
        for route in ROUTES:
            if route.form_type is not None:
                continue
            path = route.path.replace("{id}", "0")
            response = caller.send(route.method, path if "{" not in path else "/lists", None)
            if response.status != 403:
                continue
            result = response.json
            assert ("required_scope" in result) != ("required_role" in result), result
            seen.add(result.get("required_scope", result.get("required_role")))
            if "required_scope" in result:
                assert result["required_scope"] in SCOPES and result["required_scope"] in result["message"], result
            else:
                assert result["required_role"] in ROLES, result
    assert {"admin", "viewer", "contacts:read", "account:write", "campaigns:send"} <= seen
    key = callers[0].request("DELETE", "/v1/logout", None, {"Authorization": f"Bearer {callers[0].key}"})
    assert (key.status, key.json["required_role"], "required_scope" in key.json) == (403, "viewer", False)


@pytest.mark.parametrize(
    ("path", "accept", "is_json"),
    [
        ("/api/v1/contacts", "application/json", True), ("/api/v1/contacts", "*/*", True),
        ("/api/v1/contacts", None, True), ("/api", None, True),
        ("/api/v1/contacts", "text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("/nothing/here", "application/json", True), ("/nothing/here", "application/json, text/plain, */*", True),
        ("/nothing/here", "text/html", False), ("/nothing/here", "*/*", False), ("/nothing/here", None, False),
        ("/v1/my/nothing", "text/html", True), ("/v2/contacts", None, True), ("/contactz", "application/json", True),
    ],
)  # fmt: skip
def test_404_is_json_for_programs(
    server: Server, path: str, accept: str | None, is_json: bool
) -> None:  # fmt: skip
    """A client that accepts JSON gets a JSON error with its headers; a browser gets a page."""
    for method in ("GET", "POST"):
        response = server.client().request(method, path, None, {"Accept": accept} if accept else {})
        assert response.status == 404, response.text
        assert (response.headers["Content-Type"] == "application/json") == is_json, response.text
        if is_json:
            assert (response.json["code"], response.headers["X-Content-Type-Options"]) == ("not_found", "nosniff")
            assert response.headers["Cache-Control"] == "no-store"
