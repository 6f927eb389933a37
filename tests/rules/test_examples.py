"""Examples of the published document: every operation that reads a body shows one, it is valid, and it works."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from appliance.api.openapi.examples import STORY, Example
from tests.kit.client import Client, Response
from tests.kit.contract import Contract
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.uploads import multipart_form
from tests.rules.test_openapi import publish

BASE = "/v1/my"
# What reads a file that is no text
PICTURES = {"POST /v1/my/uploads"}
# With a password; tests/api/test_login.py signs in
SIGN_IN = {"POST /v1/login", "POST /v1/my/login"}
# Signed; tests/api/test_hooks.py and test_sms_receipts.py tell things
SIGNED = {"POST /hooks/email", "POST /hooks/sms"}


@pytest.fixture(scope="module")
def document() -> Any:
    """The document, parsed."""
    return yaml.load(publish(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def full(operation: str) -> str:
    """Return an operation by its whole path."""
    method, _, path = operation.partition(" ")
    return f"{method} {path if path.startswith('/v1/') else BASE + path}"


def bodies(document: Any) -> dict[str, dict[str, Any]]:
    """Return the media of every operation that reads a body."""
    found = {}
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            if "requestBody" in one:
                found[f"{method.upper()} {path}"] = one["requestBody"]["content"]
    return found


def test_every_operation_with_a_body_shows_one(document: Any) -> None:
    """Wherever a body is read, the document shows at least one, and each fits its schema."""
    contract, checked = Contract(document), 0
    for operation, content in bodies(document).items():
        kind = next(iter(content))
        examples = content[kind].get("examples", {})
        assert examples or operation in PICTURES, operation
        for one in examples.values():
            assert one["summary"]
            method, _, path = operation.partition(" ")
            way = ("paths", path, method.lower(), "requestBody", "content", kind, "schema")
            assert contract.errors_at(way, one["value"]) == [], operation
            checked += 1
    assert checked >= len(STORY)
    assert {full(one.operation) for one in STORY} == set(bodies(document)) - PICTURES - SIGN_IN - SIGNED


def test_every_success_shows_its_body(document: Any) -> None:
    """Wherever JSON is answered, the document shows one such answer, and each fits its schema."""
    contract, checked = Contract(document), set()
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            for status, raw in one["responses"].items():
                answer, where = contract.resolve(raw), f"{method.upper()} {path} {status}"
                media = answer.get("content", {}).get("application/json")
                if media is None or not status.startswith("2"):
                    continue
                assert media["examples"], where
                way = ("paths", path, method, "responses", status, "content", "application/json", "schema")
                for shown in media["examples"].values():
                    assert contract.errors_at(way, contract.resolve(shown)["value"]) == [], where
                checked.add(where)
    assert len(checked) >= 120
    told = {one["$ref"].rpartition("/")[2] for one in references(document["paths"]) if "/examples/" in one["$ref"]}
    assert told == set(document["components"]["examples"])


def references(node: Any) -> Iterator[dict[str, str]]:
    """Walk every reference."""
    if isinstance(node, dict) and "$ref" in node:
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from references(inner)


def test_every_refusal_shows_its_bodies(document: Any) -> None:
    """Each shared refusal shows a body for each of its codes and reasons, which fits the one shape."""
    contract, codes = Contract(document), set()
    for name, response in document["components"]["responses"].items():
        media = response["content"]["application/json"]
        assert media["examples"], name
        for one in media["examples"].values():
            assert contract.errors_at(("components", "schemas", "Error"), one["value"]) == [], name
            codes.add(one["value"]["code"])
    known = set(document["components"]["schemas"]["Error"]["properties"]["code"]["enum"])
    assert known - codes == {"invalid_credentials", "otp_required"}  # shown where people sign in


class Teller:
    """Sends the examples in their order, on the things that those before have made."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.public_key = ""
        signed_in = api.send("POST", "/v1/login", {"email": EMAIL, "password": PASSWORD}).expect(200)
        self.person = Client(api.url, signed_in["token"])

    def tell(self, one: Example) -> Response:
        """Send an example and return the answer."""
        method, _, path = one.operation.partition(" ")
        number = one.id or (self._captured_sms() if path.startswith("/capture/") else None)
        path = path.replace("{id}", str(number)).replace("{public_key}", self.public_key)
        if path == "/imports":
            texts = {name: text for name, text in one.body.items() if name != "file"}
            body, kind = multipart_form(one.body["file"].encode(), **texts)
            headers = {"Authorization": f"Bearer {self.api.key}", "Content-Type": kind}
            return self.api.request(method, BASE + path, body, headers)
        # What only people reach, no key does
        api = self.person if path.startswith(("/user", "/api_keys")) else self.api
        answer = api.send(method, path, one.body)
        if one.operation == "POST /forms":
            self.public_key = answer.expect(201)["public_key"]
        if path.endswith("/enroll"):
            # The first step is done at once, and then somebody waits in the second
            self.api.wait(f"/flows/{one.id}/runs", lambda rows: bool(rows) and rows[0]["step_id"] == 2)
        return answer

    def _captured_sms(self) -> int:
        rows = self.api.wait("/capture", lambda found: bool(found), channel="sms")
        return int(rows[0]["id"])


def test_the_examples_work(server: Server) -> None:
    """Sent to a new account in their order, every example does what it says: each is answered with success."""
    teller = Teller(server.client())
    for one in STORY:
        answer = teller.tell(one)
        assert 200 <= answer.status < 300, (one.operation, one.summary, answer.text)
        assert "X-Ignored-Fields" not in answer.headers, (one.operation, answer.headers["X-Ignored-Fields"])
        assert answer.body
