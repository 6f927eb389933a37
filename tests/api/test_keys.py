"""API keys over the API: created, used, revoked and kept secret (T12)."""

import re
import statistics
import time
from collections.abc import Iterator

import pytest

from tests.kit.client import Client
from tests.kit.server import Server


def test_create_use_and_revoke_a_key(server: Server, owner: Client) -> None:
    """Only the response of the creation has the key; it has its scopes, is marked as used, and ends when revoked."""
    key = owner.post("/api_keys", {"name": "Counter", "scope": "contacts:read, send"}).expect(201)
    assert re.fullmatch(r"camp_live_\w{36}", key["key"]) and key["hint"] == key["key"][-4:]
    assert (key["created_by"], key["last_used_at"], key["test"]) == (1, None, False)
    counter = server.client(key["key"])
    assert counter.get("/contacts").status == 200
    assert counter.post("/contacts", {"email": "x@example.org"}).expect(403)["required_scope"] == "contacts:write"
    listed = owner.get("/api_keys").expect(200)
    shown = next(row for row in listed if row["id"] == key["id"])
    assert shown["last_used_at"] is not None
    assert {**key, "last_used_at": shown["last_used_at"]} == {**shown, "key": key["key"]}
    assert not any("key" in row for row in listed)
    owner.delete(f"/api_keys/{key['id']}").expect(200)
    assert counter.get("/contacts").status == 401
    assert owner.delete(f"/api_keys/{key['id']}").status == 404
    acts = owner.get("/audit", subject=f"key:{key['id']}").expect(200)
    assert [(row["action"], row["actor"], row["ip"]) for row in acts] == [
        ("key_revoke", "user:1", "127.0.0.1"), ("key_create", "user:1", "127.0.0.1"),
    ]  # fmt: skip
    assert key["key"] not in str(acts)


def test_invalid_keys_are_rejected(owner: Client) -> None:
    """An unknown or internal scope, a blank name and a wrong type are rejected."""
    response = owner.post("/api_keys", {"name": " ", "scope": "contacts:fly", "test": "yes"}).expect(422)
    assert set(response["validation_errors"]) == {"name", "scope", "test"}
    for scope in ("contacts:fly", "admin", "self", "full,", "x" * 1001):
        assert "scope" in owner.post("/api_keys", {"name": "x", "scope": scope}).expect(422)["validation_errors"], scope
    assert owner.post("/api_keys", {"name": "x", "test": True}).expect(201)["key"].startswith("camp_test_")


@pytest.fixture(scope="module")
def used_key(server: Server, owner: Client) -> Iterator[str]:
    """Yield a key that was created, used, misspelt and listed."""
    key = owner.post("/api_keys", {"name": "Canary"}).expect(201)
    client = server.client(key["key"])
    client.post("/lists", {"name": "Birds"}).expect(201)
    client.post("/lists", {}).expect(422)
    Client(server.url, key["key"][:-1]).get("/lists").expect(401)
    owner.get("/api_keys").expect(200)
    Client(server.url, validate=False).request("GET", f"/v1/my/lists?key={key['key']}")
    yield key["key"]


def test_a_key_is_never_stored_in_plain_text(server: Server, used_key: str) -> None:
    """Neither a file of the data directory nor the log contains the key or a part of it."""
    files = [path for path in server.data.rglob("*") if path.is_file()]
    assert {"campanero.db", "campanero.db-wal"} <= {path.name for path in files}
    for secret in (used_key, used_key[10:], used_key[10:30]):
        assert [path.name for path in files if secret.encode() in path.read_bytes()] == []
        assert secret not in server.output


def test_a_wrong_key_reveals_nothing(server: Server, owner: Client) -> None:
    """All wrong keys get the same response, in a time that does not depend on their similarity to a valid key."""
    good = owner.post("/api_keys", {"name": "Timed"}).expect(201)["key"]
    near, far = good[:-1] + ("a" if good[-1] != "a" else "b"), "camp_live_" + "0" * 36
    responses = []
    for key in (near, far, good[:20], "camp_live_", good + "x", f"camp_test_{good[10:]}"):
        response = Client(server.url, key).get("/account")
        body = {name: value for name, value in response.expect(401).items() if name != "request_id"}
        responses.append((body, response.headers["WWW-Authenticate"]))
    assert all(response == responses[0] for response in responses)
    times: dict[str, list[float]] = {near: [], far: []}
    clients = {key: Client(server.url, key, validate=False, keep_alive=True) for key in times}
    for _ in range(300):
        for key, client in clients.items():
            started_at = time.perf_counter()
            client.get("/account")
            times[key].append(time.perf_counter() - started_at)
    medians = [statistics.median(seconds) for seconds in times.values()]
    # Keys are looked up by their hash, so differences are the noise of a busy machine
    assert max(medians) < 1.5 * min(medians)
