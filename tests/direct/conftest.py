"""Fixtures of direct delivery: simulated mail servers, and a server that delivers to them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.mail_network import MailNetwork
from tests.kit.server import Server

StartDirect = Callable[..., Server]
CONTENT = {"subject": "Bread", "body": "<p>Fresh</p>", "from_email": "ana@bakery.example"}


@pytest.fixture
def world() -> Iterator[MailNetwork]:
    """A world of mail servers, with no domain that accepts mail yet."""
    with MailNetwork() as running:
        yield running


@pytest.fixture(scope="module")
def shared_world() -> Iterator[MailNetwork]:
    """A world shared by the tests of a module; each test uses its own domain names."""
    with MailNetwork() as running:
        yield running


@pytest.fixture(scope="module")
def api(shared_world: MailNetwork) -> Iterator[Client]:
    """A client of a server that delivers to `shared_world`."""
    with Server(env=shared_world.env).set_up() as server:
        yield server.set_postal_address().client()
        server.stop()


@pytest.fixture
def direct(fresh_server: FreshServer, world: MailNetwork) -> StartDirect:
    """Start servers that deliver to the world: `direct(connections="4")` sets `email.connections`."""

    def make(clock: Any = None, env: dict[str, str] | None = None, **settings: str) -> Server:
        options = {f"CAMPANERO_EMAIL__{name.upper()}": value for name, value in settings.items()}
        return fresh_server(env=world.env | options | (env or {}), clock=clock).set_postal_address()

    return make


def send_to(api: Client, *addresses: str) -> str:
    """Send a campaign to new contacts with these addresses and return its API path."""
    name = f"To {addresses[0]}"
    client = Client(api.url, api.key, validate=False, keep_alive=True)
    list_id: int = client.post("/lists", {"name": name}).expect(201)["id"]
    for address in addresses:
        client.post("/contacts", {"email": address, "list_ids": [list_id]}).expect(201)
    body = {"name": name, "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": CONTENT}
    campaign = client.post("/campaigns", body).expect(201)
    client.post(f"/campaigns/{campaign['id']}/send").expect(200)
    return f"/campaigns/{campaign['id']}"


def post(api: Client, address: str) -> str:
    """Post a single message and return its API path."""
    return f"/messages/{api.post('/messages', {'to': address, **CONTENT}).expect(201)['id']}"


def wait_for_status(api: Client, path: str, *states: str, timeout: float = 30) -> Any:
    """Wait until the row at a path has one of these statuses and return it."""
    return api.wait(path, lambda row: row["status"] in states, timeout=timeout)
