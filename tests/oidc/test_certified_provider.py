"""Sign-in with a certified provider (`oidc-provider`), which sends its claims and its `iss` as the standards say."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import server
from tests.kit.certified_provider import certified_provider
from tests.kit.client import Client
from tests.kit.oidc_provider import CLIENT_ID, CLIENT_SECRET, Person, text_of
from tests.kit.server import Server, free_port
from tests.oidc.conftest import sign_in

__all__ = ["server"]
SERVER_ENV = {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}


@pytest.fixture(scope="module")
def provider(server: Server) -> Iterator[dict[str, Any]]:
    """Yield a provider of the service, in front of the running one."""
    port, owner = free_port(), sign_in(server)
    body = {
        "name": "Certified", "issuer": f"http://127.0.0.1:{port}", "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET, "domains": ["bakery.example"], "role": "author",
    }  # fmt: skip
    row = owner.post("/sign_in_providers", body).expect(201)
    with certified_provider(port, row["redirect_uri"], f"{server.url}/login"):
        assert owner.post(f"/sign_in_providers/{row['id']}/test").expect(200) == {"ok": True, "error": None}
        yield row


def sign_in_there(url: str, name: str) -> str:
    """Sign in at the provider and consent, and return the path and query that it sends the browser back to."""
    parts = urlsplit(url)
    browser = Person(f"{parts.scheme}://{parts.netloc}")
    response = browser.get(f"{parts.path}?{parts.query}")
    for _ in range(10):
        if response.status in (302, 303):
            target = urlsplit(str(response.headers["location"]))
            if target.netloc and target.netloc != parts.netloc:
                return f"{target.path}?{target.query}"
            response = browser.get(f"{target.path}?{target.query}")
            continue
        action = re.search(r'<form[^>]*action="([^"]+)"', response.text)
        assert response.status == 200 and action is not None, response.text
        prompt = re.search(r'name="prompt" value="(\w+)"', response.text)
        assert prompt is not None
        response = browser.post(urlsplit(action[1]).path, prompt=prompt[1], login=name, password="any")
    raise AssertionError("the provider does not come to an end")


def test_a_new_person_joins_and_comes_back(server: Server, provider: dict[str, Any]) -> None:
    """The address comes from the UserInfo endpoint; the second time, the person signs in as the same user."""
    owner = sign_in(server)
    for _ in range(2):
        person = Person(server.url)
        response = person.get(sign_in_there_path(person, provider))
        assert response.status == 303 and response.headers["location"] == "/", text_of(response)
        assert person.has_session
    rows = [row for row in owner.get("/users").expect(200) if row["email"] == "ana@bakery.example"]
    assert [(row["name"], row["role"]) for row in rows] == [("Ana Baker", "author")]
    assert len(owner.get("/audit", action="login", actor=f"user:{rows[0]['id']}").json) == 2
    # Signing out there as well: the provider accepts the client and the address to come back to
    person.post("/logout")
    url = urlsplit(str(person.get(urlsplit(provider["sign_in_url"]).path + "/sign-out").headers["location"]))
    answer = Client(f"{url.scheme}://{url.netloc}", validate=False).request("GET", f"{url.path}?{url.query}")
    assert answer.status == 200 and "/session/end/confirm" in answer.text, answer.text


def sign_in_there_path(person: Person, provider: dict[str, Any]) -> str:
    """Begin with a provider, sign in there, and return the path to come back to."""
    return sign_in_there(person.begin(provider), "ana")


def test_a_code_works_once(server: Server, provider: dict[str, Any]) -> None:
    """The provider ends what a code gave when it comes a second time; the service does not even ask it again."""
    person = Person(server.url)
    path = sign_in_there_path(person, provider)
    begun = dict(person.cookies)
    assert person.get(path).status == 303 and person.has_session
    thief = Person(server.url)
    thief.cookies = begun
    response = thief.get(path)
    assert response.status == 422 and "was used already" in text_of(response)
