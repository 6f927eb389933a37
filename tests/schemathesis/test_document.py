"""Schemathesis against the running service: thousands of requests made up from the document, good ones and bad ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit.server import EMAIL, PASSWORD, ROOT, Server
from tests.kit.tenants import Tenant

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

[checks]
# A 422 may tell what no schema can say: `good_requests_are_done` of the hooks looks at what it tells
positive_data_acceptance.enabled = false

[[operations]]
# Not for keys, for people
include-path-regex = "^/v1/my/(users?|api_keys|audit)(/|$)"
headers = {{ Authorization = "Bearer {token}" }}

[[operations]]
# Faults of single events are told one by one, in an answer of 200
include-name = "POST /v1/my/events/batch"
[operations.checks]
negative_data_rejection.enabled = false

[[operations]]
# Always 202, so that nobody learns which addresses are known
include-name = "POST /v1/public/forms/{{public_key}}"
[operations.checks]
negative_data_rejection.enabled = false
"""


@pytest.fixture
def asked(fresh_server: FreshServer) -> Server:
    """A server with one of everything."""
    return fresh_server()


def run(server: Server, place: Path, phases: str, examples: int) -> None:
    """Run Schemathesis, which must find nothing."""
    things = Tenant(server.client()).furnish("alpha").things
    config = place / "schemathesis.toml"
    token = server.client().post("/v1/login", {"email": EMAIL, "password": PASSWORD}).expect(200)["token"]
    config.write_text(CONFIG.format(url=server.url, key=server.key, token=token, examples=examples))
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.schemathesis.hooks", "THINGS": json.dumps(things),
                   "PYTHONPATH": str(ROOT)}  # fmt: skip
    command = [
        sys.executable, "-m", "schemathesis.cli", "--no-color", "--config-file", str(config), "run",
        f"{server.url}/openapi.yaml", "--phases", phases,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=1200)
    (place / "said.txt").write_text(done.stdout)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]


def test_every_operation_keeps_to_the_document(asked: Server, tmp_path: Path, full: bool) -> None:
    """Good requests are done or refused for what no schema can say, bad ones refused, all answers are as published."""
    run(asked, tmp_path, "examples,coverage,fuzzing" if full else "examples,fuzzing", 50 if full else 2)
    asked.stop()


def test_what_one_answer_leads_to(asked: Server, tmp_path: Path, full: bool) -> None:
    """What is made is there, what is deleted is gone, in made-up orders along the links of the document."""
    run(asked, tmp_path, "stateful", 50 if full else 4)
    asked.stop()
