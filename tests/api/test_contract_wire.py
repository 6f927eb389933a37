"""The documented rules of every request, tested against the running service: order of errors, headers, limits."""

import json
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server
from tests.rules.contract import errors, limits, words
from tests.rules.contract.limits import Limit

LEAST: dict[str, dict[str, Any]] = {
    "POST /lists": {"name": "x"}, "POST /segments": {"name": "x"}, "POST /campaigns": {"name": "x"},
    "POST /messages": {"to": "x"}, "POST /events": {"event": "checkout"}, "POST /forms": {"name": "x"},
    "POST /events/batch": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def paths(api: Client) -> dict[str, str]:
    """Return the paths of one object of each resource whose limits are tested."""
    bodies = {
        "/contacts": {"email": "ann@example.org"},
        "/lists": {"name": "First"},
        "/segments": {"name": "First"},
        "/campaigns": {"name": "First"},
        "/templates": {"name": "First"},
    }
    return {f"{path}/{{id}}": f"{path}/{api.post(path, body).expect(201)['id']}" for path, body in bodies.items()}


def _value_of_size(limit: Limit, size: int) -> Any:
    if limit.unit == "characters":
        return "x" * size
    if limit.unit == "bytes":
        return {"x": "a" * (size - len(json.dumps({"x": ""}, separators=(",", ":"))))}
    return [{"event": 7}] * size if limit.key == "events" else list(range(1, size + 1))


def _errors_of_size(api: Client, limit: Limit, size: int, paths: dict[str, str]) -> dict[str, list[str]]:
    method, path = limit.operation.split(" ")
    *outer, key = limit.key.split(".")
    body = {key: _value_of_size(limit, size)}
    for name in reversed(outer):
        body = {name: body}
    response = api.send(method, paths.get(path, path), {**LEAST.get(limit.operation, {}), **body})
    assert response.status < 500 and response.status != 413
    return dict(response.json.get("validation_errors", {}))


@pytest.mark.parametrize("limit", limits.LIMITS, ids=lambda limit: f"{limit.operation} {limit.key}")
def test_limits_are_exact(limit: Limit, api: Client, paths: dict[str, str]) -> None:
    """A value at its limit is accepted; one more is rejected with the limit in the message."""
    words = f"is too long (maximum is {limit.limit}"
    assert not any("too long" in error for error in _errors_of_size(api, limit, limit.limit, paths).get(limit.key, []))
    beyond = _errors_of_size(api, limit, limit.limit + 1, paths).get(limit.key, [])
    assert any(error.startswith(words) for error in beyond), beyond
    if limit.unit == "characters":
        assert f"{words} characters)" in beyond


def test_page_sizes(api: Client, paths: dict[str, str]) -> None:
    """A page has 50 rows by default and at most 100; a size below 1 is an error."""
    for name in ("limit", "per_page", "per"):
        assert api.get("/events", **{name: limits.MOST + 1}).status == 200
        for wrong in ("0", "-1", "x", ""):
            assert api.get("/events", **{name: wrong}).expect(422)["validation_errors"][name]
    event = {"event": "checkout", "contact_id": api.get("/contacts").json[0]["id"]}
    api.post("/events/batch", {"events": [event] * (limits.PAGE + 1)}).expect(200)
    shown = [len(api.get("/events", **asked).json) for asked in ({}, {"limit": 3, "per": 5}, {"per_page": 4, "per": 5})]
    assert shown == [limits.PAGE, 3, 4] and len(api.get("/events", per=100).json) > limits.PAGE
    beyond = api.get("/events", page=99)
    assert beyond.json == [] and beyond.headers["X-Next-Page"] is None


def test_errors_come_in_the_documented_order(api: Client, server: Server) -> None:
    """A request with several errors gets them in the documented order as each is fixed."""
    reads = server.new_key("reads", "--scope", "contacts:read")
    mild = {"Content-Type": "application/json"}
    large, wrong = b"x" * (limits.BODY_BYTES + 1), b"{"
    steps = [
        ("DELETE", "/v1/my/nowhere", large, {}, 404), ("PUT", "/v1/my/contacts/0", large, {}, 405),
        ("PATCH", "/v1/my/contacts/0", large, {}, 401),
        ("PATCH", "/v1/my/contacts/0", large, {"Authorization": f"Bearer {reads}"}, 403),
        ("PATCH", "/v1/my/contacts/0", large, {"Authorization": f"Bearer {api.key}"}, 413),
        ("PATCH", "/v1/my/contacts/0", wrong, {"Authorization": f"Bearer {api.key}"}, 415),
        ("PATCH", "/v1/my/contacts/0", wrong, {"Authorization": f"Bearer {api.key}", **mild}, 400),
        ("PATCH", "/v1/my/contacts/0", b'{"data":7}', {"Authorization": f"Bearer {api.key}", **mild}, 404),
    ]  # fmt: skip
    codes = {(status, code) for _, status, code in errors.CODES}
    for method, path, body, headers, status in steps:
        response = api.request(method, path, body, headers, validate=False)
        assert response.status == status, (method, path, response.text)
        result = response.json
        assert result["error"] is True and set(errors.BODY) <= set(result) and (status, result["code"]) in codes
        assert response.headers["X-Request-Id"] == result["request_id"] and response.headers[
            "X-Api-Version"
        ].startswith("1.")
        assert status != 401 or response.headers["WWW-Authenticate"] == "Bearer"
        assert status != 405 or set(response.headers["Allow"].split(", ")) >= {"GET", "PATCH", "DELETE"}
        assert status != 403 or result["required_scope"] == "contacts:write"


def test_paths_without_a_key(server: Server) -> None:
    """Links of recipients are 404 for unknown tokens, webhooks without a secret are 404, and public paths work."""
    stranger = server.client(None, validate=False)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for path, methods in words.LINKS:
        real = path.format(token="A" * 40, public_key="camp_pub_" + "A" * 36)
        for method in methods:
            response = stranger.request(method, real, b"confirm=1&act=save" if method == "POST" else None, form)
            assert response.status == 404, (method, path)
            assert method == "HEAD" or response.headers["X-Robots-Tag"] == "noindex"
    for path in words.HOOKS:
        assert stranger.request("POST", path, b"{}", {"Content-Type": "application/json"}).status == 404
    assert stranger.get("/openapi.yaml").text.startswith("openapi: 3.1")
    assert stranger.get("/healthz").json == {"status": "ok"}
