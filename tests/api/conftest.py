"""Fixtures of the API tests: the owner of the shared server, and accounts with objects."""

import pytest

from tests.kit.api_users import user_client
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.tenants import Tenant, two_tenants


@pytest.fixture(scope="module")
def owner(server: Server) -> Client:
    """Return a client of the first owner, signed in."""
    return user_client(server)


@pytest.fixture(scope="module")
def mine(server: Server) -> Tenant:
    """Return the account of the server's key with one object of every kind."""
    return Tenant(server.client()).create_objects("alpha")


@pytest.fixture(scope="module")
def tenants(server: Server) -> tuple[Tenant, Tenant]:
    """Return account A with one object of every kind, and the empty account B."""
    return two_tenants(server)
