"""Schemathesis against the running service: thousands of requests made up from the document, good ones and bad ones."""

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

SECRET = "whsec_" + "c2VjcmV0" * 4
# What is not asked of an operation, with why; everything else holds for all
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
# The links of the document, and none that are guessed: there are 3,500 of these, and few would be walked of either
inference.algorithms = []

[checks.positive_data_acceptance]
# A 422 may tell what no schema can say: `good_requests_are_done` of the hooks looks at what it tells
expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "503"]

[[operations]]
# Not for keys, for people
include-path-regex = "^/v1/my/(user|users|api_keys(/.*)?|audit)$"
headers = {{ Authorization = "Bearer {token}" }}

[[operations]]
# Who signs in no more is kept, for the audit names them, and may be let in again
include-path-regex = "^/v1/my/users/"
headers = {{ Authorization = "Bearer {token}" }}
checks.use_after_free.enabled = false

[[operations]]
include-name = "GET /v1/my/user/sessions"
headers = {{ Authorization = "Bearer {token}" }}
{ending}
[[operations]]
# Faults of single events are told one by one, in an answer of 200: `bad_events_are_told` of the hooks looks for them
include-name = "POST /v1/my/events/batch"
[operations.checks.negative_data_rejection]
expected-statuses = ["200", "400", "401", "404", "405", "413", "415", "422"]

[[operations]]
# A design that cannot be kept is shown all the same, without the values that are none
include-name = "POST /v1/my/templates/preview"
[operations.checks.negative_data_rejection]
expected-statuses = ["200", "400", "401", "404", "405", "413", "415", "422"]

[[operations]]
# Always 202, so that nobody learns which addresses are known
include-name = "POST /v1/public/forms/{{public_key}}"
[operations.checks.negative_data_rejection]
expected-statuses = ["202", "400", "401", "404", "405", "413", "415", "422"]
"""
# These end a sign-in: each by somebody of its own, or all that comes after would be 401
ENDING = """
[[operations]]
include-name = "{name}"
headers = {{ Authorization = "Bearer {token}" }}
"""
ENDS = ("DELETE /v1/logout", "DELETE /v1/my/logout", "DELETE /v1/my/user/sessions/{id}")
# Where a request that is good may be turned away all the same: for a password, and for a signature
TURNED_AWAY = {"POST /v1/login", "POST /v1/my/login", "POST /hooks/email", "POST /hooks/sms"}
# The doors of these hooks are open: what is not signed is 403
OPEN = {"CAMPANERO_EMAIL__FEEDBACK_SECRET": SECRET, "CAMPANERO_SMS__HTTP__SECRET": SECRET}


@pytest.fixture
def asked(fresh_server: FreshServer) -> Server:
    """A server with one of everything."""
    return fresh_server(env=OPEN)


def signed_in(server: Server, email: str, password: str) -> str:
    """Return a token of somebody."""
    return str(server.client().post("/v1/login", {"email": email, "password": password}).expect(200)["token"])


def run(server: Server, place: Path, phases: str, examples: int) -> None:
    """Run Schemathesis, which must find nothing."""
    things = Tenant(server.client()).create_objects("alpha").object_ids
    config = place / "schemathesis.toml"
    token = signed_in(server, EMAIL, PASSWORD)
    owner = server.client(token)
    things["api_keys"] = owner.post("/api_keys", {"name": "spare"}).expect(201)["id"]
    [things["own_key"]] = [one["id"] for one in owner.all("/api_keys") if one["hint"] == server.key[-4:]]
    somebody = owner.post("/users", {"email": "somebody@example.com", "role": "viewer"})
    things["users"], ending = somebody.expect(201)["id"], ""
    for number, name in enumerate(ENDS):
        email = f"reader{number}@example.com"
        owner.post("/users", {"email": email, "role": "viewer", "password": PASSWORD}).expect(201)
        ending += ENDING.format(name=name, token=signed_in(server, email, PASSWORD))
    config.write_text(CONFIG.format(url=server.url, key=server.key, token=token, ending=ending, examples=examples))
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.schemathesis.hooks", "THINGS": json.dumps(things),
                   "PYTHONPATH": str(ROOT)}  # fmt: skip
    command = [
        sys.executable, "-m", "schemathesis.cli", "--no-color", "--config-file", str(config), "run",
        f"{server.url}/openapi.yaml", "--phases", phases,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=3000)
    (place / "said.txt").write_text(done.stdout)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    # What no credential got through to was not tried
    assert turned_away(done.stdout) <= TURNED_AWAY, done.stdout[-5000:]


def turned_away(said: str) -> set[str]:
    """Return the operations that answered nothing but 401 and 403."""
    _, _, told = said.partition("Authentication failed:")
    return set(re.findall(r"^  - (.+)$", told.partition("\U0001f4a1")[0], re.MULTILINE))


def test_every_operation_keeps_to_the_document(asked: Server, tmp_path: Path, full: bool) -> None:
    """Good requests are done or refused for what no schema can say, bad ones refused, all answers are as published."""
    run(asked, tmp_path, "examples,coverage,fuzzing" if full else "examples,fuzzing", 50 if full else 2)
    asked.stop()


def test_what_one_answer_leads_to(asked: Server, tmp_path: Path, full: bool) -> None:
    """What is made is there, what is deleted is gone, in made-up orders along the links of the document."""
    run(asked, tmp_path, "stateful", 200 if full else 12)
    asked.stop()
