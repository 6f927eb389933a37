"""Fixtures of the tests of OpenID Connect: hostile providers, and a service that knows them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.oidc_provider import CLIENT_ID, CLIENT_SECRET, HostileProvider, HostileProviders, Person
from tests.kit.server import EMAIL, PASSWORD, Server

AddProvider = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def providers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileProviders]:
    """Yield the providers of the module."""
    with HostileProviders(tmp_path_factory.mktemp("providers")) as running:
        yield running


@pytest.fixture(scope="module")
def server(providers: HostileProviders) -> Iterator[Server]:
    """Yield a service that reaches the providers and counts no failed sign-ins."""
    with Server(env={**providers.env, "CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "1000"}).set_up() as running:
        yield running


@pytest.fixture(scope="module")
def owner(server: Server) -> Client:
    """Return a client of the API with the session of the owner."""
    return sign_in(server)


def sign_in(server: Server, email: str = EMAIL, password: str = PASSWORD) -> Client:
    """Return a client of the API with a session of a user."""
    token = server.client().post("/v1/my/login", {"email": email, "password": password}).expect(200)["token"]
    return server.client(token)


@pytest.fixture(scope="module")
def add_provider(owner: Client) -> AddProvider:
    """Return a function that adds a provider of the first account by the API."""

    def add(issuer: str, client: Client = owner, **values: Any) -> dict[str, Any]:
        body = {"name": "Work", "issuer": issuer, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, **values}
        provider: dict[str, Any] = client.post("/sign_in_providers", body).expect(201)
        return provider

    return add


@pytest.fixture
def issuer(providers: HostileProviders) -> Iterator[HostileProvider]:
    """Yield the provider that most tests use; afterwards it tells the truth again."""
    yield providers["idp.example"]
    providers.reset()


@pytest.fixture
def person(server: Server) -> Person:
    """Return a browser in which nobody is signed in."""
    return Person(server.url)
