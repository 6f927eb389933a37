"""Examples in the OpenAPI document: every operation with a body has one, they are valid, and they work."""

from collections.abc import Iterator
from typing import Any

from appliance.api.openapi.examples import OF_PASSKEYS, STORY, Example
from tests.kit.client import Client, Response
from tests.kit.contract import Contract
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.uploads import multipart_form

BASE = "/v1/my"
# Operations that read a binary file
PICTURES = {"POST /v1/my/uploads"}
# Operations that need a password; tests/api/test_login.py tests them
SIGN_IN = {"POST /v1/login", "POST /v1/my/login"}
# Operations with a signature; tests/api/test_provider_webhooks.py and test_sms_receipts.py test them
SIGNED = {"POST /hooks/email", "POST /hooks/sms"}
# Operations that need a passkey; tests/api/test_passkeys.py tests them
PASSKEYS = {f"{method} /v1/my/user/passkeys/{{id}}" for method in ("PATCH", "DELETE")}


def full_path(operation: str) -> str:
    """Return an operation with its full path."""
    method, _, path = operation.partition(" ")
    return f"{method} {path if path.startswith('/v1/') else BASE + path}"


def bodies(document: Any) -> dict[str, dict[str, Any]]:
    """Return the media types of every operation with a body."""
    results = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                results[f"{method.upper()} {path}"] = operation["requestBody"]["content"]
    return results


def test_every_body_has_a_valid_example(document: Any) -> None:
    """Each operation with a body has an example that matches its schema."""
    contract, checked = Contract(document), 0
    for operation, content in bodies(document).items():
        kind = next(iter(content))
        examples = content[kind].get("examples", {})
        assert examples or operation in PICTURES, operation
        for example in examples.values():
            assert example["summary"]
            method, _, path = operation.partition(" ")
            way = ("paths", path, method.lower(), "requestBody", "content", kind, "schema")
            assert contract.errors_at(way, example["value"]) == [], operation
            checked += 1
    assert checked >= len(STORY)
    unsent = PICTURES | SIGN_IN | SIGNED | PASSKEYS
    assert {full_path(example.operation) for example in STORY} == set(bodies(document)) - unsent
    assert {full_path(example.operation) for example in OF_PASSKEYS} == PASSKEYS


def test_every_success_response_has_a_valid_example(document: Any) -> None:
    """Each JSON success response has an example that matches its schema."""
    contract, checked = Contract(document), set()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, raw in operation["responses"].items():
                response, where = contract.resolve(raw), f"{method.upper()} {path} {status}"
                media = response.get("content", {}).get("application/json")
                if media is None or not status.startswith("2"):
                    continue
                assert media["examples"], where
                way = ("paths", path, method, "responses", status, "content", "application/json", "schema")
                for shown in media["examples"].values():
                    assert contract.errors_at(way, contract.resolve(shown)["value"]) == [], where
                checked.add(where)
    assert len(checked) >= 120
    names = {
        reference["$ref"].rpartition("/")[2]
        for reference in references(document["paths"])
        if "/examples/" in reference["$ref"]
    }
    assert names == set(document["components"]["examples"])


def references(node: Any) -> Iterator[dict[str, str]]:
    """Yield every reference in a node."""
    if isinstance(node, dict) and "$ref" in node:
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from references(inner)


def test_every_error_response_has_valid_examples(document: Any) -> None:
    """Each shared error response has examples that match the error schema, and all codes occur."""
    contract, codes = Contract(document), set()
    for name, response in document["components"]["responses"].items():
        media = response["content"]["application/json"]
        assert media["examples"], name
        for example in media["examples"].values():
            assert contract.errors_at(("components", "schemas", "ErrorResponse"), example["value"]) == [], name
            codes.add(example["value"]["code"])
    known = set(document["components"]["schemas"]["ErrorResponse"]["properties"]["code"]["enum"])
    # In the examples of the login
    assert known - codes == {"invalid_credentials", "otp_required", "password_sign_in_off"}


# Only signed-in users decide about proposals
NEEDS_MAIL = ("POST /invitations",)  # The server of the test sends none, so it answers 409.
DECISIONS = ("POST /proposals/{id}/approve", "POST /proposals/{id}/return")


class ExampleSender:
    """Sends the examples in order, on the objects that earlier ones have created."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.public_key = ""
        signed_in = api.send("POST", "/v1/login", {"email": EMAIL, "password": PASSWORD}).expect(200)
        self.person = Client(api.url, signed_in["token"])

    def send_example(self, example: Example) -> Response:
        """Send an example and return the response."""
        method, _, path = example.operation.partition(" ")
        number = example.id or (self._captured_sms() if path.startswith("/capture/") else None)
        path = path.replace("{id}", str(number)).replace("{public_key}", self.public_key)
        path = path.replace("{language}", "de")
        if path == "/imports":
            texts = {name: text for name, text in example.body.items() if name != "file"}
            body, kind = multipart_form(example.body["file"].encode(), **texts)
            headers = {"Authorization": f"Bearer {self.api.key}", "Content-Type": kind}
            return self.api.request(method, BASE + path, body, headers)
        # These operations need a user
        is_persons = (
            path.startswith(("/user", "/api_keys", "/sign_in", "/roles", "/invitations"))
            or example.operation in DECISIONS
        )
        api, body_sent = self.person if is_persons else self.api, example.body
        if "version" in body_sent:
            body_sent = {"version": self.api.get(f"/proposals/{example.id}").expect(200)["version"]}
        response = api.send(method, path, body_sent)
        if example.operation == "POST /forms":
            self.public_key = response.expect(201)["public_key"]
        if path.endswith("/enroll"):
            # The first step is done at once, then the contact waits in the second
            self.api.wait(f"/flows/{example.id}/runs", lambda rows: bool(rows) and rows[0]["step_id"] == 2)
        return response

    def _captured_sms(self) -> int:
        rows = self.api.wait("/capture", lambda rows: bool(rows), channel="sms")
        return int(rows[0]["id"])


def test_examples_work(server: Server) -> None:
    """Sent to a new account in order, every example succeeds."""
    teller = ExampleSender(server.client())
    for example in STORY:
        response = teller.send_example(example)
        is_expected = response.status == 409 if example.operation in NEEDS_MAIL else 200 <= response.status < 300
        assert is_expected, (example.operation, example.summary, response.text)
        assert "X-Ignored-Fields" not in response.headers, (example.operation, response.headers["X-Ignored-Fields"])
        assert response.body
