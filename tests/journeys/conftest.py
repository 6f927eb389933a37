"""Fixtures of the journeys: a server with many contacts, and one whose system emails arrive."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.bulk_contacts import insert_contacts
from tests.kit.server import PASSWORD, Server
from tests.kit.smtp import SmtpServer

CONTACTS, SENDABLE_SHARE = 30_000, 0.002

StartLarge = Callable[..., Server]


@pytest.fixture(scope="session")
def filled_databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for databases with many contacts, each written once."""
    return tmp_path_factory.mktemp("filled")


@pytest.fixture
def large_server(fresh_server: FreshServer, filled_databases: Path) -> StartLarge:
    """Start a server with many contacts, of whom only a share may be mailed."""

    def make(contacts: int = CONTACTS, share: float = SENDABLE_SHARE, **options: Any) -> Server:
        server = fresh_server(start=False, **options)
        database, filled = server.data / "campanero.db", filled_databases / f"{contacts}-{share}.db"
        if filled.exists():
            # All servers of a process are copies of one that was set up, so that their databases are alike
            shutil.copyfile(filled, database)
        else:
            insert_contacts(database, contacts, share)
            shutil.copyfile(database, filled)
        server.start()
        return server.set_postal_address() if options.get("relay") else server

    return make


@pytest.fixture
def sending_server(fresh_server: FreshServer, smtp_server: SmtpServer) -> Server:
    """Return a server with the SMTP test server as its relay."""
    return fresh_server(relay=smtp_server.port)


@pytest.fixture(scope="module")
def sink() -> Iterator[SmtpServer]:
    """The SMTP server that receives the mail."""
    with SmtpServer() as running:
        yield running


@contextmanager
def start_with_team(sink: SmtpServer, roles: dict[str, str]) -> Iterator[Server]:
    """Start a server that sends through the sink, with users of `roles`, by their names, beside the owner."""
    settings = {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true"}
    with Server(relay=sink.port, env=settings).set_up() as running:
        running.set_postal_address()
        running.client().patch("/account", {"email_from_email": "team@example.com"}).expect(200)
        for name, role in roles.items():
            running.cli("user", "add", "--email", f"{name}@example.org", "--role", role, stdin=PASSWORD + "\n")
        yield running
        running.stop()
