"""Rules of every endpoint: credentials, bodies, errors, pages (docs/decisions.md#1 to #4)."""

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
def test_invalid_credentials_get_the_same_401(server: Server, path: str, header: str | None) -> None:
    """Missing, malformed and unknown credentials are the same 401."""
    headers = {} if header is None else {"Authorization": header}
    response = server.client().request("GET", "/v1/my" + path, headers=headers)
    body = response.json

    assert response.status == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert (body["error"], body["code"]) == (True, "unauthorized")
    assert set(body) == {"error", "code", "message", "request_id", "hint"}


def test_a_revoked_key_is_rejected_at_once(server: Server) -> None:
    """The next request with a revoked key is a 401."""
    import apsw

    key = server.new_key("short-lived")
    client = server.client(key)
    client.get("/lists").expect(200)
    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.execute("PRAGMA busy_timeout = 5000").fetchall()
    connection.execute("UPDATE api_key SET revoked_at = 1 WHERE name = 'short-lived'").fetchall()
    connection.close()

    assert client.get("/lists").status == 401


def test_scopes_of_a_key(server: Server) -> None:
    """A missing scope is named in the 403; a write scope includes reading."""
    client = server.client(server.new_key("writer", "--scope", "contacts:write"))

    client.get("/contacts").expect(200)
    error = client.get("/campaigns").expect(403)
    assert (error["code"], error["required_scope"]) == ("forbidden", "campaigns:read")


def test_writing_campaigns_does_not_include_sending_them(server: Server) -> None:
    """`campaigns:write` can neither use `/send` nor set `status`."""
    writer = server.client(server.new_key("editor", "--scope", "campaigns:write"))
    number = writer.post("/campaigns", {"name": "x"}).expect(201)["id"]

    assert writer.post(f"/campaigns/{number}/send").expect(403)["required_scope"] == "campaigns:send"
    assert writer.patch(f"/campaigns/{number}", {"status": "active"}).expect(403)["required_scope"] == "campaigns:send"


@pytest.mark.parametrize("path", ["/v1/my/nothing", "/v1/my/contacts/1/nothing", "/v1", "/v1/my/", "/v1/other"])
def test_unknown_paths_are_404_without_a_key(api: Client, path: str) -> None:
    """An unknown path is a 404 even without a credential."""
    response = api.request("GET", path, headers={})

    assert (response.status, response.json["code"]) == (404, "not_found")


@pytest.mark.parametrize("number", ["abc", "1.5", "-1", "0", "99999999", "9" * 40, "1e3", "%00", "%D9%A3"])
@pytest.mark.parametrize("path", ["/contacts", "/lists", "/campaigns", "/messages", "/templates", "/events"])
def test_invalid_ids_are_404(api: Client, path: str, number: str) -> None:
    """An id that is not a positive integer is a 404."""
    assert api.get(f"{path}/{number}").status == 404


def test_405_lists_the_allowed_methods(api: Client) -> None:
    """A wrong method is a 405 with `Allow`."""
    response = api.request("PUT", "/v1/my/contacts")

    assert (response.status, response.json["code"]) == (405, "method_not_allowed")
    assert "GET" in response.headers["Allow"] and "POST" in response.headers["Allow"]
    # Also for paths that end in an id
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
def test_invalid_bodies_are_rejected(api: Client, body: bytes, kind: str, status: int, code: str) -> None:
    """Each kind of invalid body has its status, and nothing is written."""
    before = api.get("/lists").headers["X-Total-Count"]
    headers = {"Content-Type": kind} if kind else {"Content-Type": "application/octet-stream"}
    response = api.request("POST", "/v1/my/lists", body, headers | {"Authorization": f"Bearer {api.key}"})

    assert (response.status, response.json["code"]) == (status, code)
    assert api.get("/lists").headers["X-Total-Count"] == before


def test_compressed_bodies_are_rejected(api: Client) -> None:
    """A body with Content-Encoding is a 415, which prevents decompression bombs."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip", "Authorization": f"Bearer {api.key}"}

    assert api.request("POST", "/v1/my/lists", b"\x1f\x8b", headers).status == 415


def test_unknown_keys_are_ignored_and_reported(api: Client) -> None:
    """Read-only and unknown keys have no effect and are listed in `X-Ignored-Fields` (T10)."""
    response = api.post("/lists", {"name": "Ignored", "id": 999, "account_id": 2, "contacts_count": 5, "zz": 1})

    assert response.status == 201
    assert set(response.headers["X-Ignored-Fields"].split(", ")) == {"id", "account_id", "contacts_count", "zz"}
    assert (response.json["account_id"], response.json["contacts_count"]) == (1, 0)


@pytest.mark.parametrize("path", ["/contacts", "/lists", "/campaigns", "/messages", "/templates", "/events"])
def test_unknown_list_parameters_are_rejected(api: Client, path: str) -> None:
    """An unknown parameter is a 422, so that a misspelt filter does not return everything."""
    error = api.get(path, pagee=1).expect(422)

    assert list(error["validation_errors"]) == ["pagee"]


@pytest.mark.parametrize(
    "query", [{"page": 0}, {"page": -1}, {"page": "x"}, {"limit": 0}, {"per_page": "1.5"}, {"page": ""}]
)
def test_invalid_page_parameters_are_rejected(api: Client, query: dict[str, object]) -> None:
    """Page and limit are positive integers; any other value is an error at the parameter."""
    error = api.get("/contacts", **query).expect(422)

    assert list(error["validation_errors"]) == list(query)


def test_lists_are_paged(api: Client) -> None:
    """Headers have the totals and the neighbouring pages; a page past the end is empty."""
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


def test_responses_have_a_request_id(api: Client) -> None:
    """The id in the header of an error is the one in its body, and differs for each request."""
    response = api.get("/contacts/0")

    assert response.headers["X-Request-Id"] == response.json["request_id"]
    assert response.headers["X-Request-Id"] != api.get("/contacts/0").headers["X-Request-Id"]


def test_the_document_and_health_need_no_credential(server: Server) -> None:
    """`/openapi.yaml` and `/healthz` can be read without a credential."""
    client = server.client(None, validate=False)

    assert client.request("GET", "/openapi.yaml", headers={}).body.startswith(b"openapi: 3.1")
    assert json.loads(client.request("GET", "/healthz", headers={}).body) == {"status": "ok"}


def test_accounts_are_isolated(server: Server) -> None:
    """An id of another account is treated as unknown, in paths and in bodies (T09)."""
    mine = server.client()
    other_account = server.cli("account", "add", "Other").stdout.strip()
    theirs = server.client(server.cli("key", "create", "k", "--account", other_account).stdout.strip())
    contact = mine.post("/contacts", {"email": "secret@example.org"}).expect(201)
    list_id = mine.post("/lists", {"name": "Mine"}).expect(201)
    campaign = mine.post("/campaigns", {"name": "Mine"}).expect(201)
    template = mine.post("/templates", {"name": "Mine"}).expect(201)

    for path in (f"/contacts/{contact['id']}", f"/lists/{list_id['id']}", f"/campaigns/{campaign['id']}",
                 f"/templates/{template['id']}"):  # fmt: skip
        assert theirs.get(path).status == 404
        assert theirs.patch(path, {"name": "taken", "first_name": "taken"}).status == 404
        assert theirs.delete(path).status == 404
        assert mine.get(path).status == 200
    assert theirs.get("/contacts").headers["X-Total-Count"] == "0"
    assert theirs.get("/contacts/search", q="secret").json == []
    assert theirs.post("/contacts", {"email": "a@b.org", "list_ids": [list_id["id"]]}).expect(422)[
        "validation_errors"
    ] == {"list_ids": ["must exist"]}
    theirs_campaign = theirs.post("/campaigns", {"name": "x"}).expect(201)["id"]
    error = theirs.post(
        f"/campaigns/{theirs_campaign}/send", {"trigger_attributes": {"contact_list_id": list_id["id"]}}
    )
    assert error.expect(422)["validation_errors"] == {"trigger_attributes.contact_list_id": ["must exist"]}
    assert theirs.post("/contacts", {"email": "secret@example.org"}).status == 201


def test_order_of_errors(api: Client) -> None:
    """Invalid JSON comes before an unknown id, which comes before invalid fields (docs/decisions.md#3)."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api.key}"}
    campaign = api.post("/campaigns", {"name": "Order"}).expect(201)["id"]

    assert api.request("PATCH", "/v1/my/campaigns/abc", b"{", headers).status == 400
    assert api.patch("/campaigns/99999", {"name": ""}).status == 404
    assert api.post("/campaigns/99999/send", {"hold_seconds": -1}).status == 404
    assert api.patch(f"/campaigns/{campaign}", {"name": ""}).expect(422)["validation_errors"] == {
        "name": ["can't be blank"]
    }


def test_webhooks_without_a_secret_are_404(api: Client) -> None:
    """Without a secret each inbound webhook is a 404, like an unknown one (T30)."""
    signed = custom_relay("", {"type": "bounced", "internet_message_id": "x"}, 0)
    for name in ("email", "ses", "mailgun", "sendgrid", "postmark", "nonsense", "email/x", ""):
        response = api.request("POST", f"/hooks/{name}", signed.body, signed.headers)
        assert (response.status, response.json["code"]) == (404, "not_found")


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
def test_errors_from_the_database_are_reported_too(
    api: Client, path: str, body: dict[str, Any], named: set[str]
) -> None:
    """Unknown ids are reported together with invalid values (docs/decisions.md#3)."""
    assert set(api.post(path, body).expect(422)["validation_errors"]) == named
