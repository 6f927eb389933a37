"""Only the machine that holds the lease sends: two services on two data directories, with one store."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.faults.trouble import CONNECTIONS
from tests.kit.client import Client
from tests.kit.recipients import create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.s3_server import Fault, S3Server
from tests.kit.server import Server, relay_settings
from tests.kit.smtp import SmtpServer

SECONDS = 6


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """Serve a bucket for the tests of this module."""
    with S3Server() as server:
        yield server


@pytest.fixture(params=["directory", "s3"])
def lease_env(request: pytest.FixtureRequest, tmp_path: Path, s3: S3Server) -> dict[str, str]:
    """Return the environment of a server whose lease is in a directory or in a bucket."""
    environment = {"CAMPANERO_LEASE__SECONDS": str(SECONDS)}
    if request.param == "directory":
        return environment | {"CAMPANERO_LEASE__STORE": tmp_path.as_uri()}
    s3.faults.clear()
    s3.remove("lease.json")
    s3_env = {name: value for name, value in s3.env.items() if "__S3__" in name}
    return environment | s3_env | {"CAMPANERO_LEASE__STORE": s3.store_url}


def start(fresh_server: FreshServer, smtp: SmtpServer, env: dict[str, str]) -> Server:
    """Start a server with a relay and a lease."""
    return fresh_server(env=relay_settings(smtp.port) | env).set_postal_address()


def clone(server: Server, env: dict[str, str]) -> Server:
    """Return a server on a copy of the data of another one, as another machine: without its identity."""
    other = Server(env=env)
    shutil.copytree(server.data, other.data, ignore=shutil.ignore_patterns("node.json", "serve.lock"))
    other.key = server.key
    return other


def obstacle_codes(api: Client) -> list[str]:
    """Return what keeps the account from sending."""
    return [obstacle["code"] for obstacle in api.get("/delivery/status").expect(200)["obstacles"]]


def wait_for_obstacles(api: Client, expected: list[str], timeout: float) -> float:
    """Wait until exactly these obstacles are there, and return the seconds."""
    began = time.monotonic()
    while (codes := obstacle_codes(api)) != expected:
        assert time.monotonic() < began + timeout, (codes, expected)
        time.sleep(0.1)
    return time.monotonic() - began


def test_a_send_with_a_lease(fresh_server: FreshServer, smtp_server: SmtpServer, lease_env: dict[str, str]) -> None:
    """The holder sends everything once, and a restart after a kill waits for the end of its own lease."""
    server = start(fresh_server, smtp_server, lease_env)
    api = server.client(validate=False)
    path = send_campaign(api, create_list(api, 600))
    wait_until_completed(api, path, timeout=60)
    assert (reconcile(api, path, smtp_server.messages).copies, len(smtp_server.messages)) == (0, 600)
    server.kill()
    server.start()
    assert obstacle_codes(api) == ["lease"]
    wait_for_obstacles(api, [], SECONDS * 2)
    server.stop()
    server.start()
    wait_for_obstacles(api, [], 2)  # it gave the lease back
