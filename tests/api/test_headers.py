"""Parameters and headers of every request and response (docs/decisions.md#1, #3, #4)."""

import json
import socket

import pytest

from tests.kit.client import Client
from tests.kit.server import Server


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/contacts"), ("GET", "/account"), ("PUT", "/brand"), ("GET", "/contacts/1"), ("DELETE", "/lists/1")],
)
def test_unknown_parameters_are_rejected_everywhere(api: Client, method: str, path: str) -> None:
    """An unknown query parameter is reported with all other errors, and nothing is written."""
    api.post("/contacts", {"email": "somebody@example.org"})
    api.post("/lists", {"name": "One"})
    before = api.get("/contacts").headers["X-Total-Count"]
    body = {"email": "nobody", "brand_color": "red"} if method in ("POST", "PUT") else None
    error = api.send(method, path, body, query={"dry_run": "true"}).expect(422)

    assert error["validation_errors"].pop("dry_run") == ["is not a known parameter"]
    assert list(error["validation_errors"]) == {"POST": ["email"], "PUT": ["brand_color"]}.get(method, [])
    assert api.get("/contacts").headers["X-Total-Count"] == before
    assert api.send("DELETE", "/lists/999999", query={"dry_run": "true"}).status == 404


def test_ignored_field_names_are_encoded(api: Client) -> None:
    """`X-Ignored-Fields` percent-encodes non-ASCII characters and separators, and is limited in length."""
    response = api.post("/lists", {"name": "Ünknown", "größe": 1, "a b": 2, "x,y": 3, "100%": 4, "\ud83d": 5, "n\n": 6})

    names = response.headers["X-Ignored-Fields"].split(", ")
    assert names == ["gr%C3%B6%C3%9Fe", "a b", "x%2Cy", "100%25", "%ED%A0%BD", "n%0A"]
    many = api.post("/lists", {"name": "Many"} | {f"field_{number}": 1 for number in range(3000)})
    result = many.headers["X-Ignored-Fields"]
    assert result.startswith("field_0, field_1, ") and 3500 < len(result) <= 4000
    assert all(name.startswith("field_") for name in result.split(", "))


@pytest.mark.parametrize(("size", "status", "code"), [(5000, 401, "unauthorized"), (20_000, 401, "unauthorized"),
                                                      (60_000, 431, "bad_request")])  # fmt: skip
def test_oversized_credentials_are_rejected(server: Server, size: int, status: int, code: str) -> None:
    """A long credential is a 401; headers of more than 32 KiB are a 431 in JSON (T17)."""
    headers = {"Authorization": "Bearer " + "x" * size}
    response = server.client(validate=False).request("GET", "/v1/my/lists", headers=headers)

    assert (response.status, response.json["code"]) == (status, code)
    assert response.headers["X-Api-Version"] == "1.0"
    assert response.headers["X-Request-Id"] == response.json["request_id"]
    assert server.client().request("GET", "/login", headers={"Cookie": "x" * 60_000}).status in (400, 431)


def test_malformed_requests_get_a_json_error(server: Server) -> None:
    """A request line that the HTTP server cannot parse gets a JSON 400."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        link.sendall(b"GET /v1/my/lists HTTP/9.9\r\nHost: x\r\n\r\n")
        head, _, body = link.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b"application/json" in head
    assert json.loads(body)["code"] == "bad_request"


@pytest.mark.parametrize(
    "path", ["/v1/my/lists", "/v1/my/account", "/healthz", "/openapi.yaml", "/v1/my/exports/contacts.csv"]
)
def test_head_returns_the_headers_of_get(api: Client, path: str) -> None:
    """HEAD is supported wherever GET is, with the same status, type and length (RFC 9110, section 9.3.2)."""
    key = {"Authorization": f"Bearer {api.key}"}
    head, get = (api.request(method, path, headers=key, validate=False) for method in ("HEAD", "GET"))

    assert (head.status, head.body) == (get.status, b"") == (200, b"")
    for name in ("Content-Type", "Content-Length", "X-Total-Count", "Cache-Control"):
        assert head.headers[name] == get.headers[name], name
    assert api.request("HEAD", path, validate=False).status == (200 if path in ("/healthz", "/openapi.yaml") else 401)


def test_responses_are_neither_cached_nor_sniffed(api: Client) -> None:
    """Responses are `no-store` and `nosniff`, errors too; the OpenAPI document may be cached for five minutes."""
    key = {"Authorization": f"Bearer {api.key}"}
    for path, headers in (
        ("/v1/my/lists", key), ("/v1/my/lists", {}), ("/v1/nothing", {}), ("/v2/contacts", {}), ("/healthz", {}),
    ):  # fmt: skip
        response = api.request("GET", path, headers=headers, validate=False)
        assert response.headers["Cache-Control"] == "no-store", path
        assert response.headers["X-Content-Type-Options"] == "nosniff", path
        assert response.json, path
    assert api.request("GET", "/openapi.yaml").headers["Cache-Control"] == "max-age=300"


def test_idempotency_keys_of_test_keys_are_separate(server: Server, api: Client) -> None:
    """The same Idempotency-Key of a test key and a live key are two messages."""
    tests = server.client(server.new_key("tests", "--test"))
    sent, repeats = {"to": "her@example.org", "subject": "Hi", "body": "Hello"}, {"Idempotency-Key": "the same"}
    first, second = (client.post("/messages", sent, repeats).expect(201) for client in (api, tests))

    assert (first["test"], second["test"]) == (False, True) and first["id"] != second["id"]
    assert api.post("/messages", sent, repeats).expect(200)["id"] == first["id"]
    assert tests.post("/messages", sent, repeats).expect(200)["id"] == second["id"]


def test_all_errors_are_reported_at_once(api: Client) -> None:
    """Values are validated although others have a wrong type (docs/decisions.md#3)."""
    asked = api.get("/contacts", list_id="x", created_after="nonsense", updated_before="", page=0, dry_run=1)
    assert set(asked.expect(422)["validation_errors"]) == {
        "list_id", "created_after", "updated_before", "page", "dry_run"
    }  # fmt: skip
    for path, body, wrong in (
        ("/brand", {"brand_color": "red", "links": [{"url": "javascript:alert(1)"}], "logo": "{{ x }}"},
         {"brand_color", "links[0].url", "logo"}),
        ("/account", {"name": "", "time_zone": "Nowhere/Else", "sms_quiet_hours": {"from": "09:00", "to": "09:00"}},
         {"name", "time_zone", "sms_quiet_hours"}),
        ("/contacts", {"email": "x", "list_ids": [99999], "channels_attributes": [{"value": "y", "kind": "email"}]},
         {"email", "list_ids", "channels_attributes[0].value"}),
        ("/events", {"event": "email_sent", "contact_id": "x", "ip": "nowhere"}, {"event", "contact_id", "ip"}),
        ("/suppressions", {"address": "nobody", "reason": "manual", "note": 1}, {"address", "note"}),
        ("/lists", {"name": "x", "segment_id": 99999, "contact_ids": "all"}, {"segment_id", "contact_ids"}),
        ("/webhooks", {"url": "https://example.org/", "events": ["No Name"], "enabled": 1}, {"events[0]", "enabled"}),
        ("/forms", {"name": "x", "origins": ["no origin"], "list_ids": [99999], "double_opt_in": 1},
         {"double_opt_in", "origins[0]", "list_ids"}),
    ):  # fmt: skip
        method = {"/brand": "PUT", "/account": "PATCH"}.get(path, "POST")
        assert set(api.send(method, path, body).expect(422)["validation_errors"]) == wrong, path


@pytest.mark.parametrize(
    ("moment", "good"),
    [("2026-11-20", True), ("2026-11-20T09:30:00Z", True), ("2026-11-20T09:30:00+02:00", True),
     ("2026-11-20T09:30:00", False), ("2026-13-01", False), ("yesterday", False), ("", False), ("0001-01-01", False)],
)  # fmt: skip
def test_time_filters(api: Client, moment: str, good: bool) -> None:
    """A filter takes a date, or a time with its offset; any other value is an error (docs/decisions.md#1)."""
    for path, name in (
        ("/contacts", "updated_after"),
        ("/events", "created_before"),
        ("/exports/events.csv", "created_after"),
    ):
        assert api.get(path, **{name: moment}).status == (200 if good else 422), path


def test_account_settings(api: Client) -> None:
    """The settings of the account and its test recipients are stored and validated (docs/decisions.md#16)."""
    before = api.get("/account").expect(200)
    fields = {"test_email_recipients": ["ann@example.com", "bob@example.com", "ann@example.com"],
            "block_on_missing_variable": True, "transactional_allowed": False, "approval_required": True}  # fmt: skip
    after = api.patch("/account", fields).expect(200)
    assert {name: after[name] for name in fields} == {
        **fields,
        "test_email_recipients": ["ann@example.com", "bob@example.com"],
    }
    assert api.post("/messages", {"to": "x@example.org", "subject": "x", "body": "x", "transactional": True}).expect(
        422
    )
    for wrong in ({"test_email_recipients": ["nobody"]}, {"test_email_recipients": ["a@example.com"] * 6},
                  {"approval_required": None}, {"transactional_allowed": "yes"}):  # fmt: skip
        assert api.patch("/account", wrong).status == 422, wrong
    number = api.post("/templates", {"name": "News", "subject": "Hello", "body": "Bread"}).expect(201)["id"]
    tested = api.post(f"/templates/{number}/send_test", {}).expect(200)["results"]
    assert [message["to"] for message in tested] == ["ann@example.com", "bob@example.com"]
    back = {name: before[name] for name in fields} | {"test_email_recipients": None}
    meanwhile = {"updated_at": 0, "usage": {}, "counts": {}}
    assert api.patch("/account", back).expect(200) | meanwhile == before | meanwhile
