"""Add users, and sign them in over the API."""

from typing import Any

from tests.kit.client import Client, Response
from tests.kit.server import EMAIL, PASSWORD, Server


def login(server: Server, email: str = EMAIL, password: str = PASSWORD, **more: Any) -> Response:
    """Sign a user in over the API and return the response, which contains a token."""
    return Client(server.url).post("/v1/login", {"email": email, "password": password, **more})


def user_client(server: Server, email: str = EMAIL, password: str = PASSWORD) -> Client:
    """Sign a user in over the API and return a client with the token."""
    return Client(server.url, login(server, email, password).expect(200)["token"])


def add_user(server: Server, role: str, account: int = 1, name: str = "") -> Client:
    """Add a user with a role on the command line, sign the user in and return the client."""
    email = f"{name or role}@example.org"
    server.cli("user", "add", "--email", email, "--role", role, "--account", str(account), stdin=f"{PASSWORD}\n")
    return user_client(server, email)
