"""Fixtures of direct delivery: a world of mail servers, and a server that delivers to it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.world import World

Starts = Callable[..., Server]
CONTENT = {"subject": "Bread", "body": "<p>Fresh</p>", "from_email": "ana@bakery.example"}


@pytest.fixture
def world() -> Iterator[World]:
    """A world in which no domain takes mail until told."""
    with World() as found:
        yield found


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    """A world for the tests of a module that need none of their own; each uses names of its own."""
    with World() as found:
        yield found


@pytest.fixture(scope="module")
def api(shared_world: World) -> Iterator[Client]:
    """A client of a server that delivers to the shared world."""
    with Server(env=shared_world.env).set_up() as server:
        yield server.give_address().client()
        server.stop()


@pytest.fixture
def direct(fresh_server: FreshServer, world: World) -> Starts:
    """Start servers that deliver to the world: `direct(connections="4")` sets `email.connections`."""

    def make(clock: Any = None, env: dict[str, str] | None = None, **settings: str) -> Server:
        more = {f"CAMPANERO_EMAIL__{name.upper()}": value for name, value in settings.items()}
        return fresh_server(env=world.env | more | (env or {}), clock=clock).give_address()

    return make


def send_to(api: Client, *addresses: str) -> str:
    """Send a campaign to new people with these addresses and return its path."""
    name = f"To {addresses[0]}"
    quick = Client(api.url, api.key, validate=False, keep_alive=True)
    number: int = quick.post("/lists", {"name": name}).expect(201)["id"]
    for address in addresses:
        quick.post("/contacts", {"email": address, "list_ids": [number]}).expect(201)
    body = {"name": name, "trigger_attributes": {"contact_list_id": number}, "template_attributes": CONTENT}
    made = quick.post("/campaigns", body).expect(201)
    quick.post(f"/campaigns/{made['id']}/send").expect(200)
    return f"/campaigns/{made['id']}"


def post(api: Client, address: str) -> str:
    """Post a single message and return its path."""
    return f"/messages/{api.post('/messages', {'to': address, **CONTENT}).expect(201)['id']}"


def ended(api: Client, path: str, *states: str, timeout: float = 30) -> Any:
    """Wait until a message is in one of these states and return it."""
    return api.wait(path, lambda row: row["status"] in states, timeout=timeout)
