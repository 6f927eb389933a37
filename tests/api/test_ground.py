"""What every endpoint has in common: credentials, bodies, errors, pages (docs/decisions.md#1 to #4)."""

import json
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.email_providers import custom_relay
from tests.kit.server import Server

PATHS = ("/contacts", "/lists", "/campaigns", "/messages", "/templates", "/brand", "/account", "/events")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer camp_live_nope", "Basic YTpi", "bearer  x y", "Bearer " + "x" * 5000],
)
def test_every_kind_of_bad_credential_gets_the_same_answer(server: Server, path: str, header: str | None) -> None:
    """Missing, malformed and unknown credentials are one 401."""
    headers = {} if header is None else {"Authorization": header}
    answer = server.client().request("GET", "/v1/my" + path, headers=headers)
    body = answer.json

    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert (body["error"], body["code"]) == (True, "unauthorized")
    assert set(body) == {"error", "code", "message", "request_id", "hint"}


def test_a_revoked_key_opens_nothing_at_the_next_request(server: Server) -> None:
    """Revoking counts at once."""
    import apsw

    key = server.new_key("short-lived")
    client = server.client(key)
    client.get("/lists").expect(200)
    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.execute("PRAGMA busy_timeout = 5000").fetchall()
    connection.execute("UPDATE api_key SET revoked_at = 1 WHERE name = 'short-lived'").fetchall()
    connection.close()

    assert client.get("/lists").status == 401


def test_a_key_reaches_only_its_scopes(server: Server) -> None:
    """A scope that is missing is named in the 403; writing includes reading."""
    client = server.client(server.new_key("writer", "--scope", "contacts:write"))

    client.get("/contacts").expect(200)
    refused = client.get("/campaigns").expect(403)
    assert (refused["code"], refused["required_scope"]) == ("forbidden", "campaigns:read")


def test_writing_campaigns_does_not_include_sending_them(server: Server) -> None:
    """`campaigns:write` may edit and not send, by `/send` or by `status`."""
    writer = server.client(server.new_key("editor", "--scope", "campaigns:write"))
    number = writer.post("/campaigns", {"name": "x"}).expect(201)["id"]

    assert writer.post(f"/campaigns/{number}/send").expect(403)["required_scope"] == "campaigns:send"
    assert writer.patch(f"/campaigns/{number}", {"status": "active"}).expect(403)["required_scope"] == "campaigns:send"


@pytest.mark.parametrize("path", ["/v1/my/nothing", "/v1/my/contacts/1/nothing", "/v1", "/v1/my/", "/v1/other"])
def test_unknown_paths_are_404_before_anything_else(api: Client, path: str) -> None:
    """A path that does not exist says so, whoever asks."""
    answer = api.request("GET", path, headers={})

    assert (answer.status, answer.json["code"]) == (404, "not_found")


@pytest.mark.parametrize("number", ["abc", "1.5", "-1", "0", "99999999", "9" * 40, "1e3", "%00", "%D9%A3"])
@pytest.mark.parametrize("path", ["/contacts", "/lists", "/campaigns", "/messages", "/templates", "/events"])
def test_an_id_that_is_no_number_is_a_thing_that_does_not_exist(api: Client, path: str, number: str) -> None:
    """Ids are whole numbers; all else is 404."""
    assert api.get(f"{path}/{number}").status == 404


def test_a_wrong_method_names_the_right_ones(api: Client) -> None:
    """405 with `Allow`."""
    answer = api.request("PUT", "/v1/my/contacts")

    assert (answer.status, answer.json["code"]) == (405, "method_not_allowed")
    assert "GET" in answer.headers["Allow"] and "POST" in answer.headers["Allow"]
    # Also where several methods share a path that ends in an id
    for path, methods in (
        ("flows/1", "GET, HEAD, PATCH, DELETE"),
        ("events/1", "GET, HEAD"),
        ("flows/1/runs/1", "GET, HEAD"),
    ):
        assert api.request("PUT", f"/v1/my/{path}").headers["Allow"] == methods


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"{", "application/json", 400, "invalid_json"),
        (b"[]", "application/json", 400, "invalid_json"),
        (b'"x"', "application/json", 400, "invalid_json"),
        (b"", "application/json", 400, "invalid_json"),
        (b'{"name": NaN}', "application/json", 400, "invalid_json"),
        (b'{"name": Infinity}', "application/json", 400, "invalid_json"),
        (b'{"name": "\xff"}', "application/json", 400, "invalid_json"),
        (b"[" * 100_000, "application/json", 400, "invalid_json"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "application/json", 400, "invalid_json"),
        (b'{"name":"x"}', "text/plain", 415, "unsupported_media_type"),
        (b"name=x", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        (b'{"name":"x"}', "", 415, "unsupported_media_type"),
        (b'{"name":"\\ud800"}', "application/json", 422, "validation_error"),
        (b'{"name":"a\\u0000b"}', "application/json", 422, "validation_error"),
        (b'{"name":"' + b"x" * 2_200_000 + b'"}', "application/json", 413, "payload_too_large"),
    ],
)
def test_bodies_that_are_no_json_object(api: Client, body: bytes, kind: str, status: int, code: str) -> None:
    """Each kind of unreadable body has its own status, and nothing is written."""
    before = api.get("/lists").headers["X-Total-Count"]
    headers = {"Content-Type": kind} if kind else {"Content-Type": "application/octet-stream"}
    answer = api.request("POST", "/v1/my/lists", body, headers | {"Authorization": f"Bearer {api.key}"})

    assert (answer.status, answer.json["code"]) == (status, code)
    assert api.get("/lists").headers["X-Total-Count"] == before


def test_an_encoded_body_is_refused(api: Client) -> None:
    """No Content-Encoding, so no bombs."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip", "Authorization": f"Bearer {api.key}"}

    assert api.request("POST", "/v1/my/lists", b"\x1f\x8b", headers).status == 415


def test_keys_nobody_declared_are_ignored_and_named(api: Client) -> None:
    """Read-only and unknown keys change nothing; the header names them (T10)."""
    answer = api.post("/lists", {"name": "Ignored", "id": 999, "account_id": 2, "contacts_count": 5, "zz": 1})

    assert answer.status == 201
    assert set(answer.headers["X-Ignored-Fields"].split(", ")) == {"id", "account_id", "contacts_count", "zz"}
    assert (answer.json["account_id"], answer.json["contacts_count"]) == (1, 0)


@pytest.mark.parametrize("path", ["/contacts", "/lists", "/campaigns", "/messages", "/templates", "/events"])
def test_an_unknown_parameter_of_a_list_is_a_fault(api: Client, path: str) -> None:
    """A misspelt filter must not return everything."""
    fault = api.get(path, pagee=1).expect(422)

    assert list(fault["validation_errors"]) == ["pagee"]


@pytest.mark.parametrize(
    "query", [{"page": 0}, {"page": -1}, {"page": "x"}, {"limit": 0}, {"per_page": "1.5"}, {"page": ""}]
)
def test_page_and_limit_have_to_be_whole_numbers_from_one(api: Client, query: dict[str, object]) -> None:
    """422 under the name of the parameter."""
    fault = api.get("/contacts", **query).expect(422)

    assert list(fault["validation_errors"]) == list(query)


def test_every_list_is_paged(api: Client) -> None:
    """Headers count records and pages; the ends have no neighbour; past the end is an empty array."""
    for number in range(5):
        api.post("/templates", {"name": f"T{number}"}).expect(201)
    first = api.get("/templates", standalone="true", limit=2)
    last = api.get("/templates", standalone="true", per_page=2, page=3)
    past = api.get("/templates", standalone="true", per=2, page=10**15)

    assert [row["name"] for row in first.json] == ["T4", "T3"]
    assert {name: first.headers[name] for name in ("X-Total-Count", "X-Total-Pages", "X-Page-Number")} == {
        "X-Total-Count": "5", "X-Total-Pages": "3", "X-Page-Number": "1",
    }  # fmt: skip
    assert (first.headers.get("X-Next-Page"), first.headers.get("X-Prev-Page")) == ("2", None)
    assert (last.headers.get("X-Next-Page"), last.headers.get("X-Prev-Page")) == (None, "2")
    assert (past.status, past.json) == (200, [])
    assert api.get("/templates", limit=1000).status == 200


def test_every_answer_has_a_request_id_and_errors_name_it(api: Client) -> None:
    """The id in the header is the one in the body."""
    answer = api.get("/contacts/0")

    assert answer.headers["X-Request-Id"] == answer.json["request_id"]
    assert answer.headers["X-Request-Id"] != api.get("/contacts/0").headers["X-Request-Id"]


def test_the_document_and_health_need_no_credential(server: Server) -> None:
    """`/openapi.yaml` begins with its version, `/healthz` says ok."""
    client = server.client(None, validate=False)

    assert client.request("GET", "/openapi.yaml", headers={}).body.startswith(b"openapi: 3.1")
    assert json.loads(client.request("GET", "/healthz", headers={}).body) == {"status": "ok"}


def test_two_accounts_do_not_see_each_other(server: Server) -> None:
    """Another account's id behaves as if it never existed, in paths and nested (T09)."""
    mine = server.client()
    other_account = server.cli("account", "add", "Other").stdout.strip()
    theirs = server.client(server.cli("key", "create", "k", "--account", other_account).stdout.strip())
    contact = mine.post("/contacts", {"email": "secret@example.org"}).expect(201)
    group = mine.post("/lists", {"name": "Mine"}).expect(201)
    campaign = mine.post("/campaigns", {"name": "Mine"}).expect(201)
    template = mine.post("/templates", {"name": "Mine"}).expect(201)

    for path in (f"/contacts/{contact['id']}", f"/lists/{group['id']}", f"/campaigns/{campaign['id']}",
                 f"/templates/{template['id']}"):  # fmt: skip
        assert theirs.get(path).status == 404
        assert theirs.patch(path, {"name": "taken", "first_name": "taken"}).status == 404
        assert theirs.delete(path).status == 404
        assert mine.get(path).status == 200
    assert theirs.get("/contacts").headers["X-Total-Count"] == "0"
    assert theirs.get("/contacts/search", q="secret").json == []
    assert theirs.post("/contacts", {"email": "a@b.org", "list_ids": [group["id"]]}).expect(422)[
        "validation_errors"
    ] == {"list_ids": ["must exist"]}
    theirs_campaign = theirs.post("/campaigns", {"name": "x"}).expect(201)["id"]
    fault = theirs.post(f"/campaigns/{theirs_campaign}/send", {"trigger_attributes": {"contact_list_id": group["id"]}})
    assert fault.expect(422)["validation_errors"] == {"trigger_attributes.contact_list_id": ["must exist"]}
    assert theirs.post("/contacts", {"email": "secret@example.org"}).status == 201


def test_faults_are_told_in_their_order(api: Client) -> None:
    """JSON before the id, the id before the fields (docs/decisions.md#3)."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api.key}"}
    campaign = api.post("/campaigns", {"name": "Order"}).expect(201)["id"]

    assert api.request("PATCH", "/v1/my/campaigns/abc", b"{", headers).status == 400
    assert api.patch("/campaigns/99999", {"name": ""}).status == 404
    assert api.post("/campaigns/99999/send", {"hold_seconds": -1}).status == 404
    assert api.patch(f"/campaigns/{campaign}", {"name": ""}).expect(422)["validation_errors"] == {
        "name": ["can't be blank"]
    }


def test_hooks_are_closed_until_they_have_a_secret(api: Client) -> None:
    """No secret, no door: 404 whatever is posted, as for a name that is none (T30)."""
    signed = custom_relay("", {"type": "bounced", "internet_message_id": "x"}, 0)
    for name in ("email", "ses", "mailgun", "sendgrid", "postmark", "nonsense", "email/x", ""):
        answer = api.request("POST", f"/hooks/{name}", signed.body, signed.headers)
        assert (answer.status, answer.json["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/templates", {"channel": "fax", "subject": "{{ x"}, {"channel", "subject"}),
        ("/segments", {"name": "", "filters": [{"name": "x"}]}, {"name", "filters[0].name", "filters[0].predicate"}),
        ("/campaigns", {"name": "", "template_attributes": {"subject": "{{ x"}},
         {"name", "template_attributes.subject"}),
        ("/lists", {"name": "", "segment_id": 99_999}, {"name", "segment_id"}),
        ("/contacts", {"email": "nobody", "list_ids": [99_999]}, {"email", "list_ids"}),
        ("/suppressions", {"reason": "x"}, {"address", "reason"}),
        ("/events", {"ip": "x"}, {"event", "ip", "contact_id"}),
    ],
)  # fmt: skip
def test_what_only_the_database_knows_is_told_with_the_rest(
    api: Client, path: str, body: dict[str, Any], named: set[str]
) -> None:
    """All failures at once (docs/decisions.md#3), also where one is of a type and another of what exists."""
    assert set(api.post(path, body).expect(422)["validation_errors"]) == named
