"""Schemathesis against the running service: thousands of valid and invalid requests generated from the document."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit.server import EMAIL, PASSWORD, ROOT, Server
from tests.kit.tenants import Tenant

# Each test of operations takes a part of the paths: all of them would take more than an hour
PARTS = 8
SECRET = "whsec_" + "c2VjcmV0" * 4
# Exceptions for single operations, with their reasons
CONFIG = """
base-url = "{url}"
seed = 8
workers = 2
headers = {{ Authorization = "Bearer {key}" }}

[generation]
deterministic = true
database = "none"
max-examples = {examples}

[phases.stateful]
max-steps = 12
generation.mode = "positive"
# Only the links of the document: 3,500 guessed ones would leave little time for these
inference.algorithms = []

[checks.positive_data_acceptance]
# A 422 may be for a rule that no schema expresses: `valid_requests_succeed` of the hooks checks which rule
expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "503"]

[[operations]]
# These need a user instead of a key
include-path-regex = "^/v1/my/(user|users|api_keys(/.*)?|audit|agents(/.*)?|proposals/.*/(approve|return))$"
headers = {{ Authorization = "Bearer {token}" }}

[[operations]]
# So do these
include-path-regex = "^/v1/my/(user/(passkeys|identities)|roles|invitations|sign_in|sign_in_providers)(/.*)?$"
headers = {{ Authorization = "Bearer {token}" }}

[[operations]]
# Deleted users are only disabled, because the audit log names them
include-path-regex = "^/v1/my/users/"
headers = {{ Authorization = "Bearer {token}" }}
checks.use_after_free.enabled = false

[[operations]]
# The schema is that of the text, as clients return it; Schemathesis parses the document
include-name = "GET /openapi.yaml"
checks.response_schema_conformance.enabled = false

[[operations]]
# Their steps have the schema of those of `POST /v1/my/flows`, whose 22,000 cases take a quarter of an hour
include-name-regex = '^(PATCH /v1/my/flows/.id.|POST /v1/my/flows/.id./(replay|simulate|simulate_all))$'
phases.coverage.enabled = false

[[operations]]
# A new flow has no replay
include-name = "DELETE /v1/my/flows/{{id}}/replay"
checks.ensure_resource_availability.enabled = false

[[operations]]
include-name = "GET /v1/my/user/sessions"
headers = {{ Authorization = "Bearer {token}" }}

[[operations]]
include-name = "PATCH /v1/my/user/sessions/{{id}}"
headers = {{ Authorization = "Bearer {token}" }}
{ending}
[[operations]]
# Errors of single events are reported in a 200 response: `invalid_events_are_reported` of the hooks checks them
include-name = "POST /v1/my/events/batch"
[operations.checks.negative_data_rejection]
expected-statuses = ["200", "400", "401", "404", "405", "413", "415", "422"]

[[operations]]
# So are those of single messages; a key that was used for another batch is told before them
include-name = "POST /v1/my/messages/batch"
[operations.checks.negative_data_rejection]
expected-statuses = ["200", "400", "401", "404", "405", "409", "413", "415", "422"]

[[operations]]
# An invalid design is shown without its invalid values
include-name = "POST /v1/my/templates/preview"
[operations.checks.negative_data_rejection]
expected-statuses = ["200", "400", "401", "404", "405", "413", "415", "422"]

[[operations]]
# Always 202, which does not reveal known addresses, or 429 after 50 submissions of one client in a minute
include-name = "POST /v1/public/forms/{{public_key}}"
[operations.checks.negative_data_rejection]
expected-statuses = ["202", "400", "401", "404", "405", "413", "415", "422", "429"]
"""
# These end a session, so each uses its own user
ENDING = """
[[operations]]
include-name = "{name}"
headers = {{ Authorization = "Bearer {token}" }}
"""
ENDS = ("DELETE /v1/logout", "DELETE /v1/my/logout", "DELETE /v1/my/user/sessions/{id}")
# Operations that reject all generated requests, because they need a password or a signature
TURNED_AWAY = {"POST /v1/login", "POST /v1/my/login", "POST /hooks/email", "POST /hooks/sms"}
# Settings that enable webhooks, so that unsigned requests are a 403
OPEN = {"CAMPANERO_EMAIL__FEEDBACK_SECRET": SECRET, "CAMPANERO_SMS__HTTP__SECRET": SECRET}


@pytest.fixture
def target_server(fresh_server: FreshServer) -> Server:
    """Return a server with webhook secrets."""
    return fresh_server(env=OPEN)


def sign_in(server: Server, email: str, password: str) -> str:
    """Return a token of a user."""
    return str(server.client().post("/v1/login", {"email": email, "password": password}).expect(200)["token"])


def run_schemathesis(server: Server, place: Path, phases: str, examples: int, part: int | None = None) -> None:
    """Create one object of every kind and run Schemathesis on all paths or a part, which must find no failure."""
    things = Tenant(server.client()).create_objects("alpha").object_ids
    config = place / "schemathesis.toml"
    token = sign_in(server, EMAIL, PASSWORD)
    owner = server.client(token)
    things["api_keys"] = owner.post("/api_keys", {"name": "spare"}).expect(201)["id"]
    [things["own_key"]] = [key["id"] for key in owner.all("/api_keys") if key["hint"] == server.key[-4:]]
    somebody = owner.post("/users", {"email": "somebody@example.com", "role": "viewer"})
    things["users"], ending = somebody.expect(201)["id"], ""
    for number, name in enumerate(ENDS):
        email = f"reader{number}@example.com"
        owner.post("/users", {"email": email, "role": "viewer", "password": PASSWORD}).expect(201)
        ending += ENDING.format(name=name, token=sign_in(server, email, PASSWORD))
    config.write_text(CONFIG.format(url=server.url, key=server.key, token=token, ending=ending, examples=examples))
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.schemathesis.hooks", "THINGS": json.dumps(things),
                   "PYTHONPATH": str(ROOT)}  # fmt: skip
    command = [
        sys.executable, "-m", "schemathesis.cli", "--no-color", "--config-file", str(config), "run",
        f"{server.url}/openapi.yaml", "--phases", phases,
    ]  # fmt: skip
    if part is not None:
        for path in sorted(owner.contract().document["paths"])[part::PARTS]:
            command += ["--include-path", path]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=9000)
    (place / "said.txt").write_text(done.stdout)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    # An operation that rejected all credentials was not tested
    assert rejected_operations(done.stdout) <= TURNED_AWAY, done.stdout[-5000:]


def rejected_operations(output: str) -> set[str]:
    """Return the operations that returned nothing but 401 and 403."""
    _, _, failures = output.partition("Authentication failed:")
    return set(re.findall(r"^  - (.+)$", failures.partition("\U0001f4a1")[0], re.MULTILINE))


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.full) for part in range(1, PARTS))])
def test_operations_match_the_document(target_server: Server, tmp_path: Path, full: bool, part: int) -> None:
    """Valid requests succeed or break a rule that no schema expresses, invalid ones fail, and responses match."""
    phases, examples = ("examples,coverage,fuzzing", 50) if full else ("examples,fuzzing", 1)
    run_schemathesis(target_server, tmp_path, phases, examples, part)
    target_server.stop()


@pytest.mark.full
def test_linked_operations(target_server: Server, tmp_path: Path, full: bool) -> None:
    """Created objects exist and deleted ones are gone, in random orders along the links of the document."""
    run_schemathesis(target_server, tmp_path, "stateful", 200 if full else 6)
    target_server.stop()
