"""A user with a passkey signs in with a provider: the passkey is the second factor."""

import json
import re
from html import unescape
from typing import Any

import pytest

from tests.kit.oidc_provider import CLIENT_ID, CLIENT_SECRET, HostileProviders, Person
from tests.kit.passkey import SoftwarePasskey
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.oidc.conftest import sign_in


@pytest.fixture(scope="module")
def server(providers: HostileProviders) -> Any:
    """Yield a service whose base URL has a host name, which passkeys need."""
    running = Server(env={**providers.env, "CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "1000"})
    running.url = running.url.replace("127.0.0.1", "localhost")
    running.env["CAMPANERO_BASE_URL"] = running.url
    with running.set_up():
        yield running


def test_a_passkey_is_the_second_factor(server: Server, providers: HostileProviders) -> None:
    """The provider alone does not sign in; the passkey of the user does, and one of somebody else does not."""
    body = {"name": "Work", "issuer": "https://idp.example", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    provider, issuer = sign_in(server).post("/sign_in_providers", body).expect(201), providers["idp.example"]
    person = Person(server.url)
    path = str(person.sign_in(provider, issuer).headers["location"])
    assert person.post(path, email=EMAIL, password=PASSWORD).status == 303
    page = person.post("/settings/you/passkeys/new", password=PASSWORD).text
    options = re.search(r'data-passkey-options="([^"]+)"', page)
    assert options is not None, page
    passkey, foreign = SoftwarePasskey(server.url), SoftwarePasskey(server.url)
    credential = passkey.create(json.loads(unescape(options[1])))
    assert person.post("/settings/you/passkeys", credential=credential, name="Key").status == 303

    visitor = Person(server.url)
    path = str(visitor.sign_in(provider, issuer).headers["location"])
    page = visitor.get(path).text
    token = re.search(r'name="pass" value="([^"]+)"', page)
    assert path.endswith("/finish") and "Sign in with a passkey" in page and token is not None
    assert not visitor.has_session
    foreign.create(json.loads(unescape(options[1])))
    for key, status in ((foreign, 422), (passkey, 303)):
        challenge = visitor.post("/login/passkey", **{"pass": token[1]}).json
        response = visitor.post(path, **{"pass": token[1], "credential": key.sign(challenge)})
        assert response.status == status, response.text
    assert visitor.has_session
