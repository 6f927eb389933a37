"""Sign-in with a provider: who joins, who links, what else is asked for, and how passwords are turned off."""

import html
import re
import secrets
import time
from typing import Any

import pytest

from appliance.accounts import login as second_factor
from tests.kit.client import Client
from tests.kit.oidc_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    HostileProvider,
    HostileProviders,
    Person,
    key_of,
    text_of,
)
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.oidc.conftest import AddProvider, sign_in


def sign_in_with_password(server: Server, email: str) -> Person:
    """Return a browser that a user has signed in to with the password."""
    person = Person(server.url)
    response = person.post("/login", email=email, password=PASSWORD)
    assert response.status == 303, text_of(response)
    return person


def add_user(server: Server, name: str, role: str = "editor", account: int = 1) -> str:
    """Add a user on the command line, and return the address."""
    email = f"{name}-{secrets.token_hex(3)}@example.org"
    options = ("--role", role, "--account", str(account))
    server.cli("user", "add", "--email", email, *options, stdin=f"{PASSWORD}\n")
    return email


@pytest.fixture(scope="module")
def work(add_provider: AddProvider) -> dict[str, Any]:
    """Return a provider whose people may join as editors with an address of one domain."""
    return add_provider("https://idp.example", domains=["@Bakery.example"], role="editor")


def test_joining_by_the_domain(
    server: Server, owner: Client, work: dict[str, Any], issuer: HostileProvider
) -> None:  # fmt: skip
    """Only a verified address in a listed domain joins, once, with the role of the provider."""
    assert work["domains"] == ["bakery.example"]
    refused = [
        {"email_verified": False}, {"email_verified": "true"}, {"email_verified": None}, {"email": None},
        {"email": "eve@sub.bakery.example"}, {"email": "eve@bakery.example.evil.example"}, {"email": "bakery.example"},
        {"email": "eve@evil.example@bakery.example"}, {"email": ["eve@bakery.example"]},
    ]  # fmt: skip
    for claims in refused:
        stranger = Person(server.url)
        stranger.sign_in(work, issuer, **{"sub": "eve", "email": "eve@bakery.example", **claims})
        assert not stranger.has_session, claims
    joined = Person(server.url)
    joined.sign_in(work, issuer, sub="ben", email="Ben@Bakery.Example", name="Ben B\u202eaker")
    assert joined.has_session
    user = owner.get("/users").expect(200)[0]
    assert (user["email"], user["name"], user["role"]) == ("ben@bakery.example", "Ben Baker", "editor")
    entry = owner.get("/audit", action="user_join").expect(200)[0]
    assert entry["data"] == {"role": "editor", "provider": "Work"} and entry["subject"] == f"user:{user['id']}"
    # The same address of somebody else at the provider joins nothing and signs nobody in
    other = Person(server.url)
    other.sign_in(work, issuer, sub="other-ben", email="ben@bakery.example")
    assert not other.has_session
    assert len([row for row in owner.get("/users").json if row["email"] == "ben@bakery.example"]) == 1
    # A disabled user does not come back by joining
    owner.patch(f"/users/{user['id']}", {"disabled": True}).expect(200)
    again = Person(server.url)
    response = again.sign_in(work, issuer, sub="ben", email="ben@bakery.example")
    assert "can no longer sign in" in text_of(response) and not again.has_session and not joined.has_session


def test_joining_with_google(server: Server, providers: HostileProviders, add_provider: AddProvider) -> None:
    """The organization of the account must be the domain: a personal account can have any address."""
    google = providers["accounts.google.com"]
    provider = add_provider("https://accounts.google.com", name="Google", domains=["bakery.example"])
    for claims in ({}, {"hd": "other.example"}, {"hd": ["bakery.example"]}):
        stranger = Person(server.url)
        stranger.sign_in(provider, google, sub="personal", email="pia@bakery.example", **claims)
        assert not stranger.has_session, claims
    member = Person(server.url)
    member.sign_in(provider, google, sub="pia", email="pia@bakery.example", hd="Bakery.example")
    assert member.has_session


def test_an_address_of_the_user_info_endpoint(
    server: Server, work: dict[str, Any], issuer: HostileProvider
) -> None:  # fmt: skip
    """It counts if it is about the subject of the ID token (OpenID Connect Core 1.0, section 5.3.2)."""
    info = {"sub": "someone", "email": "uma@bakery.example", "email_verified": True}
    issuer.user_info = info
    stranger = Person(server.url)
    stranger.sign_in(work, issuer, sub="uma", email=None, email_verified=None)
    assert not stranger.has_session
    issuer.user_info = {**info, "sub": "uma"}
    person = Person(server.url)
    person.sign_in(work, issuer, sub="uma", email=None, email_verified=None)
    assert person.has_session


def link_from_profile(person: Person, provider: dict[str, Any], issuer: HostileProvider, **claims: Any) -> str:
    """Link an identity as a signed-in user does, and return the text of the profile afterwards."""
    path = f"/settings/you/identities/{key_of(provider)}"
    account = re.search(r'name="open_account" value="(\d+)"', person.get(path).text)
    response = person.post(path, password=PASSWORD, open_account=account[1] if account else "")
    url = re.search(r'class="btn primary" href="([^"]+)"', response.text)
    assert response.status == 200 and url is not None, text_of(response)
    response = person.come_back(provider, issuer.authorize(html.unescape(url[1]), **claims))
    assert response.headers["location"] == "/settings/you"
    return person.get("/settings/you").text


def test_linking_in_the_profile(
    server: Server, owner: Client, work: dict[str, Any], issuer: HostileProvider
) -> None:  # fmt: skip
    """It takes the password, the session that began it, and an identity that nobody has; unlinking ends sessions."""
    path = f"/settings/you/identities/{key_of(work)}"
    kim = sign_in_with_password(server, add_user(server, "kim"))
    assert f'href="{path}"' in kim.get("/settings/you").text
    for password in ("", "wrong password"):
        response = kim.post(path, password=password)
        assert response.status == 422 and "/authorize" not in response.text
    assert "Work linked" in link_from_profile(kim, work, issuer, sub="kim", email="kim@other.example")
    assert "kim@other.example" in kim.get("/settings/you").text
    # Nobody else links the same identity, and a stranger's answer links nothing to a session
    lee = sign_in_with_password(server, add_user(server, "lee"))
    assert "linked to another user already" in link_from_profile(lee, work, issuer, sub="kim")
    response = lee.post(path, password=PASSWORD)
    url = html.unescape(re.search(r'class="btn primary" href="([^"]+)"', response.text)[1])  # type: ignore[index]  # it is
    answer, begun = issuer.authorize(url, sub="lee"), lee.cookies["campanero-oidc"]
    for session in (None, kim.cookies["campanero"]):
        other = Person(server.url)
        other.cookies = {"campanero-oidc": begun} | ({"campanero": session} if session else {})
        assert other.come_back(work, answer).status == 422
        answer = issuer.authorize(url, sub="lee")
    assert lee.get("/settings/you").text.count("/unlink") == 0
    # The identity signs in; unlinked in the other browser, its session ends
    elsewhere = Person(server.url)
    elsewhere.sign_in(work, issuer, sub="kim")
    assert elsewhere.has_session
    number = re.search(r"/settings/you/identities/(\d+)/unlink", kim.get("/settings/you").text)
    assert number is not None
    assert lee.post(f"/settings/you/identities/{number[1]}/unlink").status == 404
    assert kim.post(f"/settings/you/identities/{number[1]}/unlink").status == 303
    assert kim.has_session and not elsewhere.has_session
    for action in ("identity_link", "identity_unlink"):
        assert owner.get("/audit", action=action).expect(200)[0]["data"] == {"provider": "Work"}


def test_a_reset_password_unlinks(
    server: Server, owner: Client, work: dict[str, Any], issuer: HostileProvider
) -> None:  # fmt: skip
    """Who knew the password before, such as the admin who added the user, no longer enters by a provider."""
    email = add_user(server, "ida")
    ida = sign_in_with_password(server, email)
    link_from_profile(ida, work, issuer, sub="not-ida", email="eve@other.example")
    stranger = Person(server.url)
    stranger.sign_in(work, issuer, sub="not-ida", email="eve@other.example")
    assert stranger.has_session
    number = next(row["id"] for row in owner.get("/users", limit=100).expect(200) if row["email"] == email)
    owner.patch(f"/users/{number}", {"password": "a password of the admin"}).expect(200)
    assert not stranger.has_session
    stranger.sign_in(work, issuer, sub="not-ida", email="eve@other.example")
    assert not stranger.has_session
    assert owner.get("/audit", action="identity_unlink").expect(200)[0]["subject"] == f"user:{number}"


def pass_token(page: str) -> str:
    """Return the token with which a page asks for the second factor."""
    match = re.search(r'name="pass" value="([^"]+)"', page)
    assert match is not None, page
    return match[1]


def enable_codes(person: Person) -> str:
    """Set up an authenticator app for the user of a browser, and return its key."""
    key = re.search(r'name="secret" value="([^"]+)"', person.get("/settings/you/otp").text)
    assert key is not None
    code = second_factor.otp_code(key[1], int(time.time()) // 30)
    assert person.post("/settings/you/otp", secret=key[1], otp=code, password=PASSWORD).status == 303
    return key[1]


def test_second_factor(server: Server, owner: Client, work: dict[str, Any], issuer: HostileProvider) -> None:
    """The code is asked for after the provider, too, unless the provider is trusted and says that it checked one."""
    email = add_user(server, "nia")
    nia = sign_in_with_password(server, email)
    link_from_profile(nia, work, issuer, sub="nia")
    now = int(time.time()) // 30
    key = enable_codes(nia)
    code = second_factor.otp_code(key, now)

    def come(**claims: Any) -> tuple[Person, str]:
        person = Person(server.url)
        return person, str(person.sign_in(work, issuer, sub="nia", **claims).headers["location"])

    person, path = come(amr=["mfa"])
    page = person.get(path)
    assert path.endswith("/finish") and "two-factor authentication" in text_of(page)
    token = pass_token(page.text)
    # The password is no way around the code; neither is a used one, or the token of somebody else
    assert person.post(path, email=EMAIL, password=PASSWORD, otp="").status == 422
    assert person.post(path, **{"pass": token, "otp": code}).status == 422 and not person.has_session
    other_email = add_user(server, "otto")
    other_key = enable_codes(sign_in_with_password(server, other_email))
    other_page = Person(server.url).post("/login", email=other_email, password=PASSWORD)
    form = {"pass": pass_token(other_page.text), "otp": second_factor.otp_code(other_key, now + 1)}
    assert person.post(path, **form).status == 422 and not person.has_session
    form = {"pass": token, "otp": second_factor.otp_code(key, now + 1)}
    # It proves no password, and so begins no session that is free of the provider and its accounts
    assert person.post("/login", **form).status == 422 and not person.has_session
    assert person.post(path, **form).status == 303 and person.has_session
    assert owner.get("/audit", action="login").json[0]["data"]["method"] == "oidc_second_factor"
    owner.patch(f"/sign_in_providers/{work['id']}", {"trust_mfa": True}).expect(200)
    for amr in (None, ["pwd"], "mfa", ["MFA"]):
        person, path = come(amr=amr)
        assert path.endswith("/finish") and not person.has_session
    person, _ = come(amr=["pwd", "mfa"])
    assert person.has_session
    owner.patch(f"/sign_in_providers/{work['id']}", {"trust_mfa": False}).expect(200)
    # Linking by the password takes the code of the user as well
    stranger = Person(server.url)
    path = str(stranger.sign_in(work, issuer, sub="new", email_verified=False).headers["location"])
    response = stranger.post(path, email=email, password=PASSWORD)
    assert response.status == 200 and not stranger.has_session
    assert (
        stranger.post(path, **{"pass": pass_token(response.text), "otp": "000000"}).status == 422
        and not stranger.has_session
    )


def test_another_account(server: Server, owner: Client, providers: HostileProviders, work: dict[str, Any]) -> None:
    """A provider of another account has no button for strangers, and signs in its own people only."""
    account = owner_of_new_account(server)
    other = account.post(
        "/sign_in_providers",
        {"name": "Theirs", "issuer": "https://other.example", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET,
         "domains": ["theirs.example"]},
    ).expect(201)  # fmt: skip
    issuer, person = providers["other.example"], Person(server.url)
    assert "Sign in with Work" in text_of(person.get("/login"))
    assert "Theirs" not in text_of(person.get("/login"))
    person.sign_in(other, issuer, sub="tom", email="tom@theirs.example")
    assert person.has_session and account.get("/users").json[0]["email"] == "tom@theirs.example"
    assert owner.get("/users", page_size=100).text.count("tom@theirs") == 0
    person.post("/logout")
    assert "Sign in with Theirs" in text_of(person.get("/login"))
    # The owner of the first account cannot be linked to it, by password or in the profile
    stranger = Person(server.url)
    path = str(stranger.sign_in(other, issuer, sub="mallory", email=EMAIL).headers["location"])
    response = stranger.post(path, email=EMAIL, password=PASSWORD)
    assert response.status == 422 and "belongs to another account" in text_of(response) and not stranger.has_session
    assert sign_in_with_password(server, EMAIL).get(f"/settings/you/identities/{key_of(other)}").status == 404
    # Nor does one account see or change the providers of another
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/test")):
        assert owner.send(method, f"/sign_in_providers/{other['id']}{path}", {}).status == 404
        assert account.send(method, f"/sign_in_providers/{work['id']}{path}", {}).status == 404


def owner_of_new_account(server: Server) -> Client:
    """Add an account, and return a client of the API with the session of its owner."""
    number = int(re.findall(r"\d+", server.cli("account", "add", "Other").stdout)[0])
    return sign_in(server, add_user(server, "boss", "owner", number))


def test_who_may_set_it_up(server: Server, owner: Client, work: dict[str, Any]) -> None:
    """Owners and admins, not editors and API keys; nobody joins as an owner; secrets never come back."""
    for client in (server.client(), sign_in(server, add_user(server, "ed"))):
        for method, path in (
            ("GET", "/sign_in_providers"), ("POST", "/sign_in_providers"), ("GET", "/sign_in"), ("PATCH", "/sign_in"),
            ("POST", f"/sign_in_providers/{work['id']}/test"), ("DELETE", f"/sign_in_providers/{work['id']}"),
        ):  # fmt: skip
            assert client.send(method, path, {}).status == 403, (method, path)
    admin = sign_in(server, add_user(server, "admin", "admin"))
    body = {"name": "x", "issuer": "https://idp.example", "client_id": "x"}
    faults = admin.post("/sign_in_providers", {**body, "role": "owner"}).expect(422)["validation_errors"]
    assert set(faults) == {"role"}
    assert admin.patch("/sign_in", {"password": False}).status == 403
    row = admin.get(f"/sign_in_providers/{work['id']}").expect(200)
    assert row["has_client_secret"] and CLIENT_SECRET not in str(row)
    content = b"".join(path.read_bytes() for path in server.data.glob("campanero.db*"))
    assert b"campanero" in content and CLIENT_SECRET.encode() not in content and CLIENT_SECRET not in server.output


@pytest.mark.parametrize(
    "issuer",
    ["http://idp.example", "https://127.0.0.1", "https://10.0.0.1/realms/a", "https://[::1]", "https://idp.example:8443",
     "https://user@idp.example", "https://idp.example#a", "ftp://idp.example", "idp.example", "https://169.254.169.254"],
)  # fmt: skip
def test_issuers_that_are_refused(owner: Client, issuer: str) -> None:
    """The service requests public web addresses over https only."""
    body = {"name": "x", "issuer": issuer, "client_id": "x"}
    assert set(owner.post("/sign_in_providers", body).expect(422)["validation_errors"]) == {"issuer"}


def test_testing_a_provider(
    owner: Client, providers: HostileProviders, add_provider: AddProvider, work: dict[str, Any]
) -> None:
    """The test says in plain words what is wrong."""

    def run_test(provider: dict[str, Any]) -> Any:
        return owner.post(f"/sign_in_providers/{provider['id']}/test").expect(200)

    issuer = providers["idp.example"]
    assert run_test(work) == {"ok": True, "error": None}
    wrong_secret = add_provider("https://idp.example/.well-known/openid-configuration", client_secret="wrong")
    assert wrong_secret["issuer"] == "https://idp.example"
    assert (
        "does not accept the client ID or its secret: client authentication failed" in run_test(wrong_secret)["error"]
    )
    faults: tuple[tuple[dict[str, Any], str], ...] = (
        ({"issuer": "https://idp.example/"}, "calls itself https://idp.example/. Enter exactly this"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE with S256"),
        ({"response_types_supported": ["id_token"]}, "authorization code flow"),
        ({"id_token_signing_alg_values_supported": ["HS256", "none"]}, "signs with no method that is safe"),
        ({"token_endpoint": "http://idp.example/token"}, "not safe: token_endpoint"),
        ({"jwks_uri": "file:///etc/passwd"}, "not safe: jwks_uri"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "not safe: authorization_endpoint"),
        ({"jwks_uri": "https://127.0.0.1/keys"}, "127.0.0.1 cannot be reached"),
        ({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}, "accepts no client secret"),
        ({"token_endpoint": 5}, "is not the description of a provider"),
    )  # fmt: skip
    for metadata, words in faults:
        issuer.metadata = metadata
        assert words in run_test(work)["error"], words
    issuer.metadata, issuer.published = {}, []
    assert "publishes no key" in run_test(work)["error"]
    providers.reset()
    unknown = add_provider("https://nowhere.example")
    assert "nowhere.example cannot be reached" in run_test(unknown)["error"]
    assert run_test(work)["ok"]


def test_a_provider_that_is_turned_off(
    server: Server, owner: Client, add_provider: AddProvider, issuer: HostileProvider
) -> None:
    """Sessions that began with it end, its URLs are unknown, and after it was removed nobody is linked."""
    provider = add_provider("https://idp.example", name="Short", domains=["short.example"])
    person = Person(server.url)
    person.sign_in(provider, issuer, sub="sue", email="sue@short.example")
    assert person.has_session
    owner.patch(f"/sign_in_providers/{provider['id']}", {"enabled": False}).expect(200)
    assert not person.has_session and person.get(f"/login/oidc/{key_of(provider)}").status == 404
    owner.patch(f"/sign_in_providers/{provider['id']}", {"enabled": True}).expect(200)
    person.sign_in(provider, issuer, sub="sue", email="sue@short.example")
    assert person.has_session
    owner.delete(f"/sign_in_providers/{provider['id']}").expect(200)
    assert not person.has_session
    entries = owner.get("/audit", subject=f"provider:{provider['id']}").json
    assert [entry["action"] for entry in entries] == [
        "provider_delete", "provider_update", "provider_update", "provider_add",
    ]  # fmt: skip
    assert entries[2]["data"] == {"name": "Short", "changed": ["enabled"], "enabled": False}


def test_signing_out_at_the_provider(
    server: Server, work: dict[str, Any], issuer: HostileProvider
) -> None:  # fmt: skip
    """The next page offers it, with this service's address to come back to (RP-Initiated Logout 1.0, section 2)."""
    person = Person(server.url)
    person.sign_in(work, issuer, sub="out", email="out@bakery.example")
    response = person.post("/logout")
    assert response.headers["location"] == f"/login?bye=1&provider={key_of(work)}" and not person.has_session
    assert "Also sign out of Work" in text_of(person.get(response.headers["location"]))
    url = person.get(f"/login/oidc/{key_of(work)}/sign-out").headers["location"]
    assert url.startswith(
        "https://idp.example/logout?client_id=campanero&post_logout_redirect_uri=http%3A%2F%2F127.0.0.1"
    )
    plain = sign_in_with_password(server, EMAIL)
    assert plain.post("/logout").headers["location"] == "/login?bye=1"


def test_turning_passwords_off(providers: HostileProviders) -> None:
    """It takes an owner who has signed in with a provider; then no password signs in, until the machine allows it."""
    with Server(env=providers.env).set_up() as server:
        owner = sign_in(server)
        body = {"name": "Work", "issuer": "https://idp.example", "client_id": CLIENT_ID}
        provider = owner.post("/sign_in_providers", {**body, "client_secret": CLIENT_SECRET}).expect(201)
        fault = owner.patch("/sign_in", {"password": False}).expect(422)["validation_errors"]
        assert fault == {"password": ["is needed until an owner has signed in with a provider"]}
        issuer, person, email = providers["idp.example"], Person(server.url), add_user(server, "eli")
        path = str(person.sign_in(provider, issuer, sub="owner").headers["location"])
        assert person.post(path, email=EMAIL, password=PASSWORD).status == 303
        assert owner.patch("/sign_in", {"password": False}).expect(200) == {"password": False}
        assert owner.get("/sign_in").expect(200) == {"password": False}
        # A wrong password says nothing about the account
        for address, password, code in ((email, PASSWORD, "password_sign_in_off"), (email, "x", "invalid_credentials")):
            error = server.client().post("/v1/my/login", {"email": address, "password": password}).expect(401)
            assert error["code"] == code
        visitor = Person(server.url)
        response = visitor.post("/login", email=EMAIL, password=PASSWORD)
        assert response.status == 422 and "does not allow passwords" in text_of(response) and not visitor.has_session
        # It still links, together with the provider; and the last owner's way in cannot be removed
        path = str(visitor.sign_in(provider, issuer, sub="eli").headers["location"])
        assert visitor.post(path, email=email, password=PASSWORD).status == 303 and visitor.has_session
        for act in (
            lambda: owner.delete(f"/sign_in_providers/{provider['id']}"),
            lambda: owner.patch(f"/sign_in_providers/{provider['id']}", {"enabled": False}),
            lambda: owner.delete(f"/user/identities/{owner.get('/user/identities').json[0]['id']}"),
        ):
            assert act().status == 422
        server.cli("user", "allow-password", "--email", email)
        assert owner.get("/sign_in").expect(200) == {"password": True}
        assert server.client().post("/v1/my/login", {"email": email, "password": PASSWORD}).status == 200
        entries = owner.get("/audit", action="sign_in_update").json
        assert [(entry["actor"], entry["data"]) for entry in entries] == [
            ("cli", {"password": True}), ("user:1", {"password": False}),
        ]  # fmt: skip
        # Failed sign-ins are limited as those with a password are
        issuer.claims = {"nonce": "other"}
        assert [Person(server.url).sign_in(provider, issuer).status for _ in range(10)] == [422] * 10
        assert Person(server.url).get(f"/login/oidc/{key_of(provider)}").status == 429
        assert owner.get("/audit", action="login_failed").json[0]["subject"] == f"provider:{provider['id']}"
        providers.reset()


def test_a_person_in_two_accounts(
    server: Server, owner: Client, providers: HostileProviders, work: dict[str, Any], issuer: HostileProvider
) -> None:
    """A provider of the other account opens this one only; one of the first account opens both, and so does a code."""
    number = int(server.cli("account", "add", "Second").stdout)
    boss = sign_in(server, add_user(server, "second", "owner", number))
    email = add_user(server, "both", "owner")
    server.cli("user", "add", "--email", email, "--account", str(number), "--role", "viewer", stdin=f"{PASSWORD}\n")
    body = {"name": "Second", "issuer": "https://other.example", "client_id": CLIENT_ID}
    second = boss.post("/sign_in_providers", {**body, "client_secret": CLIENT_SECRET}).expect(201)

    def open_account(person: Person, account: int) -> int:
        return person.post("/accounts/open", account=account, next="/").status

    both = sign_in_with_password(server, email)
    for provider, other_issuer in ((work, issuer), (second, providers["other.example"])):
        link_from_profile(both, provider, other_issuer, sub="both", email=email)
    assert (open_account(both, number), open_account(both, 1)) == (303, 303)
    shared, alone = Person(server.url), Person(server.url)
    shared.sign_in(work, issuer, sub="both")
    assert (open_account(shared, number), open_account(shared, 1)) == (303, 303)
    # The person had the first account open last; the provider opens its own, as a viewer, and no other
    alone.sign_in(second, providers["other.example"], sub="both")
    assert alone.get("/settings/team").status == 403 and "Second" in alone.get("/settings").text
    assert open_account(alone, 1) == 403 and open_account(alone, number) == 303
    # Nor does its session link an identity at a provider that opens the first account, without the password
    for person, account, status in ((alone, number, 422), (shared, 1, 200)):
        response = person.post(f"/settings/you/identities/{key_of(work)}", open_account=account)
        assert (response.status, "/authorize" in response.text) == (status, status == 200), text_of(response)
    # Removed from that account, the provider signs in nowhere, although the person is still in the first one
    users = {row["email"]: row["id"] for row in boss.get("/users").expect(200)}
    boss.delete(f"/users/{users[email]}").expect(200)
    assert not alone.has_session
    response = alone.sign_in(second, providers["other.example"], sub="both")
    assert "can no longer sign in" in text_of(response) and not alone.has_session
    providers.reset()


def test_passwords_off_in_one_of_two_accounts(
    server: Server, providers: HostileProviders, issuer: HostileProvider
) -> None:  # fmt: skip
    """A password opens the account that allows it, and not the other."""
    number = int(server.cli("account", "add", "Strict").stdout)
    boss_email = add_user(server, "strict", "owner", number)
    boss = sign_in(server, boss_email)
    body = {"name": "Strict", "issuer": "https://idp.example", "client_id": CLIENT_ID}
    provider = boss.post("/sign_in_providers", {**body, "client_secret": CLIENT_SECRET}).expect(201)
    person = Person(server.url)
    path = str(person.sign_in(provider, issuer, sub="boss").headers["location"])
    assert person.post(path, email=boss_email, password=PASSWORD).status == 303
    boss.patch("/sign_in", {"password": False}).expect(200)
    email = add_user(server, "guest")
    server.cli("user", "add", "--email", email, "--account", str(number), stdin=f"{PASSWORD}\n")
    guest = sign_in_with_password(server, email)
    assert "Bakery" in guest.get("/settings").text
    assert guest.post("/accounts/open", account=number, next="/").status == 403
    assert sign_in(server, email).get("/account").expect(200)["name"] == "Bakery"
    # An invited person joins, although the password does not open the account, and can then link its provider
    email = add_user(server, "invited")
    invited = sign_in_with_password(server, email)
    link = invite(person, email)
    response = invited.post(link)
    assert response.status == 303 and response.headers["location"] == "/settings/you", text_of(response)
    assert email in str(boss.get("/users").expect(200)) and invited.get(link).status == 410
    assert "needs another way to sign in" in text_of(invited.get("/settings/you"))
    assert invited.post("/accounts/open", account=number, next="/").status == 403
    assert "Strict linked" in link_from_profile(invited, provider, issuer, sub="invited")
    visitor = Person(server.url)
    visitor.sign_in(provider, issuer, sub="invited")
    assert "Strict" in visitor.get("/settings").text
    accept_with_the_provider(server, person, provider, issuer)
    assert [row["role"] for row in boss.get("/users").json if row["email"] == "nina@new.example"] == ["viewer"]


def accept_with_the_provider(
    server: Server, admin: Person, provider: dict[str, Any], issuer: HostileProvider
) -> None:  # fmt: skip
    """An invited person without a user accepts with the invited address, verified at the provider, and only so."""
    link = invite(admin, "nina@new.example")
    invited = Person(server.url)
    start = f"/login/oidc/{key_of(provider)}{link.replace('/invitations', '/invitation')}"
    assert start in invited.get(link).text
    nina = {"sub": "nina", "email": "nina@new.example", "name": "Nina"}
    refused: list[dict[str, Any]] = [
        {"email": "eve@new.example"}, {"email_verified": False}, {"email": None}, {"sub": "invited"},
    ]  # fmt: skip
    for claims in refused:
        url = str(invited.get(start).headers["location"])
        response = invited.come_back(provider, issuer.authorize(url, **nina | claims))
        assert response.status == 422 and start in response.text and not invited.has_session, claims
    # Another invitation's link, an altered one and a provider of another account lead to no user
    for wrong in (f"{start}x", start.replace(key_of(provider), "A" * 22)):
        assert invited.get(wrong).headers.get("location", "/invitations").startswith("/invitations")
    url = str(invited.get(start).headers["location"])
    response = invited.come_back(provider, issuer.authorize(url, **nina | {"email": "Nina@New.example"}))
    assert (response.status, response.headers["location"], invited.has_session) == (303, "/", True), text_of(response)
    assert invited.get(link).status == 410
    again = Person(server.url)
    again.sign_in(provider, issuer, sub="nina", email="other@new.example")
    assert again.has_session


def invite(admin: Person, email: str) -> str:
    """Invite an address as a viewer on the page of the team, and return the path of the link."""
    assert admin.post("/settings/team", email=email, role="viewer").status == 303
    match = re.search(r"/invitations/\d+/[\w-]+", admin.get("/settings/team").text)
    assert match is not None
    return match[0]
