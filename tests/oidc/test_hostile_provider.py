"""A provider that signs anything, and people who replay, mix up and forge: nobody gets a session or an identity."""

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.kit.client import Client
from tests.kit.oidc_provider import (
    CLIENT_ID,
    FIRST_KEY,
    TENANT,
    HostileProvider,
    HostileProviders,
    Person,
    encode,
    key_of,
    public_jwk,
    text_of,
)
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.timeouts import cpu_seconds
from tests.oidc.conftest import AddProvider

FOREIGN_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SMALL_KEY = rsa.generate_private_key(public_exponent=65537, key_size=1024)


@pytest.fixture(scope="module")
def work(add_provider: AddProvider) -> dict[str, Any]:
    """Return a provider that lets nobody join."""
    return add_provider("https://idp.example")


@pytest.fixture(scope="module")
def linked(work: dict[str, Any], providers: HostileProviders, server: Server) -> str:
    """Link the subject `linked-1` to the owner by the password, and return it."""
    person = Person(server.url)
    response = person.sign_in(work, providers["idp.example"], sub="linked-1")
    assert response.headers["location"] == f"/login/oidc/{key_of(work)}/finish"
    assert "as ana@bakery.example. This account is not linked" in text_of(person.get(response.headers["location"]))
    person.post(response.headers["location"], email=EMAIL, password=PASSWORD)
    assert person.has_session
    return "linked-1"


def test_a_linked_identity_signs_in(
    person: Person, work: dict[str, Any], issuer: HostileProvider, linked: str, owner: Client
) -> None:
    """Also with another address, or one that is not verified: the subject counts. The audit log names the provider."""
    response = person.come_back(
        work, issuer.authorize(person.begin(work, "/contacts?page=2"), sub=linked, email="new@x.example",
                               email_verified=False),
    )  # fmt: skip
    assert response.status == 303 and response.headers["location"] == "/contacts?page=2"
    assert person.has_session
    entry = owner.get("/audit", action="login").expect(200)[0]
    assert entry["data"]["provider"] == "Work" and entry["actor"] == "user:1"
    identity = next(row for row in owner.get("/user/identities").expect(200) if row["email"] == "new@x.example")
    assert identity["provider"] == "Work" and identity["last_used_at"]
    assert owner.get("/user").expect(200)["email"] == EMAIL


def refuse(person: Person, response: Any, words: str) -> None:
    """Check that a response signs nobody in and says why."""
    assert response.status == 422 and words in text_of(response), text_of(response)
    assert "campanero" not in person.cookies and "campanero-oidc-person" not in person.cookies


NOW = int(time.time())
BAD_CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "another audience": ({"aud": "other-client"}, "(aud)"),
    "a further audience": ({"aud": [CLIENT_ID, "other-client"], "azp": CLIENT_ID}, "(aud)"),
    "another authorized party": ({"azp": "other-client"}, "(azp)"),
    "another nonce": ({"nonce": "other"}, "(nonce)"),
    "no nonce": ({"nonce": None}, "(nonce)"),
    "a nonce that is not text": ({"nonce": 5}, "(nonce)"),
    "another issuer": ({"iss": "https://other.example"}, "(iss)"),
    "an issuer with a slash": ({"iss": "https://idp.example/"}, "(iss)"),
    "expired": ({"exp": NOW - 90}, "(exp)"),
    "no expiry": ({"exp": None}, "(exp)"),
    "an endless expiry": ({"exp": 10**15}, "(exp)"),
    "issued in the future": ({"iat": NOW + 86_400}, "(iat)"),
    "no time of issue": ({"iat": None}, "(iat)"),
    "not valid yet": ({"nbf": NOW + 86_400}, "(nbf)"),
    "no subject": ({"sub": None}, "(sub)"),
    "an empty subject": ({"sub": ""}, "(sub)"),
    "a long subject": ({"sub": "x" * 256}, "(sub)"),
    "a subject that is a number": ({"sub": 5}, "(sub)"),
}


@pytest.mark.parametrize("name", BAD_CLAIMS)
def test_bad_claims(
    person: Person, work: dict[str, Any], issuer: HostileProvider, linked: str, name: str
) -> None:  # fmt: skip
    """Each claim of OpenID Connect Core 1.0, section 3.1.3.7, is checked."""
    claims, words = BAD_CLAIMS[name]
    refuse(person, person.sign_in(work, issuer, **{"sub": linked, **claims}), words)


def test_the_clock_may_differ_by_a_minute(
    person: Person, work: dict[str, Any], issuer: HostileProvider, linked: str
) -> None:
    """A token that expired 40 seconds ago, or was issued in 40 seconds, is valid."""
    now = int(time.time())
    person.sign_in(work, issuer, sub=linked, exp=now - 40, iat=now + 40)
    assert person.has_session


def unsigned(claims: dict[str, Any]) -> str:
    """Return a token with the algorithm `none`."""
    return f"{encode({'alg': 'none', 'kid': 'key-1'})}.{encode(claims)}."


def signed_by_public_key(claims: dict[str, Any]) -> str:
    """Return a token whose HMAC has the public key as its secret."""
    pem = FIRST_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header, body = encode({"alg": "HS256", "typ": "JWT", "kid": "key-1"}), encode(claims)
    mac = hmac.digest(pem, f"{header}.{body}".encode(), hashlib.sha256)
    return f"{header}.{body}.{encode(mac)}"


def with_broken_signature(claims: dict[str, Any]) -> str:
    """Return a token whose claims were changed after it was signed."""
    header, _, signature = jwt.encode({**claims, "sub": "x"}, FIRST_KEY, "RS256", {"kid": "key-1"}).split(".")
    return f"{header}.{encode(claims)}.{signature}"


BAD_TOKENS: dict[str, tuple[Callable[[dict[str, Any]], str], str]] = {
    "unsigned": (unsigned, "(signature)"),
    "unsigned with a signature": (lambda claims: unsigned(claims) + "eA", "(alg)"),
    "signed by the public key": (signed_by_public_key, "(alg)"),
    "changed": (with_broken_signature, "(signature)"),
    "by a foreign key": (lambda claims: jwt.encode(claims, FOREIGN_KEY, "RS256", {"kid": "key-1"}), "(signature)"),
    "by an unknown key": (lambda claims: jwt.encode(claims, FOREIGN_KEY, "RS256", {"kid": "key-9"}), "(signature)"),
    "no token": (lambda claims: "no token", "(signature)"),
    "no JSON": (lambda claims: f"{encode(b'{')}.{encode(b'{')}.x", "(header)"),
    "a key in the header": (
        lambda claims: jwt.encode(claims, FOREIGN_KEY, "RS256", {"jwk": public_jwk(FOREIGN_KEY, "a"), "kid": "a"}),
        "(signature)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_bad_signatures(
    person: Person, work: dict[str, Any], issuer: HostileProvider, linked: str, name: str
) -> None:  # fmt: skip
    """RFC 8725, sections 2.1 to 2.4 and 3.1: only a private key of the provider signs."""
    issuer.build_token, words = BAD_TOKENS[name]
    refuse(person, person.sign_in(work, issuer, sub=linked), words)


@pytest.mark.parametrize("kind", ["at+jwt", "logout+jwt"])
def test_other_kinds_of_tokens(
    person: Person, work: dict[str, Any], issuer: HostileProvider, linked: str, kind: str
) -> None:  # fmt: skip
    """An access token or logout token of the same provider is no ID token (RFC 8725, section 3.11)."""
    issuer.header = {"typ": kind}
    refuse(person, person.sign_in(work, issuer, sub=linked), "(header)")


@pytest.mark.filterwarnings("ignore:The RSA key")
def test_keys(person: Person, providers: HostileProviders, add_provider: AddProvider, server: Server) -> None:
    """Each algorithm works with its own kind of key; keys are changed at any time, and read again a few times only."""
    issuer = providers["other.example"]
    provider = add_provider("https://other.example", name="Other")
    keys: dict[str, Any] = {
        "PS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ES256": ec.generate_private_key(ec.SECP256R1()), "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    }  # fmt: skip
    issuer.metadata = {"id_token_signing_alg_values_supported": list(keys)}
    for name, key in keys.items():
        issuer.key, issuer.alg, issuer.kid = key, name, f"key-{name}"
        issuer.published.append(public_jwk(key, issuer.kid, alg=name))
        visitor = Person(server.url)
        visitor.sign_in(provider, issuer)
        assert "campanero-oidc-person" in visitor.cookies, name
    # The first reading, and one for each of two unknown keys
    assert issuer.key_reads == 3
    issuer.alg = "PS512"
    issuer.key, issuer.kid = keys["PS256"], "key-PS256"
    refuse(person, person.sign_in(provider, issuer), "(signature)")
    issuer.key, issuer.kid, issuer.alg = SMALL_KEY, "small", "RS256"
    issuer.published.append(public_jwk(SMALL_KEY, "small"))
    refuse(person, person.sign_in(provider, issuer), "(signature)")
    issuer.kid = "nobody"
    for _ in range(5):
        refuse(person, person.sign_in(provider, issuer), "(signature)")
    assert issuer.key_reads == 6
    issuer.kid = None
    refuse(person, person.sign_in(provider, issuer), "(signature)")
    providers.reset()


def test_private_keys(person: Person, providers: HostileProviders, add_provider: AddProvider, server: Server) -> None:
    """A private key that is published is not used: searching the factors of this one would take minutes."""
    issuer = providers["other.example"]
    provider = add_provider("https://other.example", name="Private keys")
    number = base64.urlsafe_b64encode(b"\xff" * 1_024).decode().rstrip("=")
    issuer.published.append(public_jwk(ec.generate_private_key(ec.SECP256R1()), "curve") | {"d": "AQAB"})
    issuer.published += [{"kty": "RSA", "kid": "long", "n": number, "e": "AQAB", "d": number}] * 20
    forget(person, provider)
    for issuer.kid in ("long", "curve"):
        before = cpu_seconds(server.pid)
        refuse(person, person.sign_in(provider, issuer), "(signature)")
        assert cpu_seconds(server.pid) - before < 1.5
    assert "Traceback" not in server.output
    providers.reset()
    forget(person, provider)


def test_replayed_answers(
    person: Person, server: Server, work: dict[str, Any], issuer: HostileProvider, linked: str
) -> None:
    """An answer is accepted once, by the browser that began, within ten minutes, although the provider would."""
    issuer.accepts_every_code = True
    url = person.begin(work)
    answer, cookies = issuer.authorize(url, sub=linked), dict(person.cookies)
    other = Person(server.url)
    refuse(other, other.come_back(work, answer), "begun in another browser")
    other.begin(work)
    refuse(other, other.come_back(work, answer), "begun in another browser")
    assert person.come_back(work, answer).status == 303 and person.has_session
    thief = Person(server.url)
    thief.cookies = cookies
    refuse(thief, thief.come_back(work, answer), "was used already")
    for changed in ({**answer, "state": ""}, {"code": answer["code"]}, {**answer, "state": answer["state"] + "\ud7ff"}):
        thief.cookies = dict(cookies)
        refuse(thief, thief.come_back(work, changed), "begun in another browser")


def test_a_replayed_token(
    person: Person, server: Server, work: dict[str, Any], issuer: HostileProvider, linked: str
) -> None:  # fmt: skip
    """The ID token of an earlier sign-in has another nonce."""
    person.sign_in(work, issuer, sub=linked)
    token = issuer.last_token
    issuer.build_token = lambda claims: token
    other = Person(server.url)
    refuse(other, other.sign_in(work, issuer, sub=linked), "(nonce)")


def test_mixed_up_providers(
    person: Person, work: dict[str, Any], issuer: HostileProvider, providers: HostileProviders, linked: str,
    add_provider: AddProvider,
) -> None:  # fmt: skip
    """A code of one provider is not sent to another: each has its own redirect URI, and `iss` is compared."""
    hostile = add_provider("https://other.example", name="Hostile")
    answer = issuer.authorize(person.begin(work), sub=linked)
    refuse(person, person.come_back(hostile, answer), "begun in another browser")
    assert providers["other.example"].token_requests == []
    answer = issuer.authorize(person.begin(work), sub=linked) | {"iss": "https://other.example"}
    refuse(person, person.come_back(work, answer), "another provider (iss)")
    assert issuer.token_requests == []
    person.sign_in(work, issuer, sub=linked)
    assert person.has_session


def test_an_issuer_that_must_be_named(person: Person, providers: HostileProviders, add_provider: AddProvider) -> None:
    """A provider that says that it sends `iss` must send it (RFC 9207, section 2.4)."""
    issuer = providers["other.example"]
    issuer.metadata = {"authorization_response_iss_parameter_supported": True}
    provider = add_provider("https://other.example", name="Naming")
    assert provider["id"] and person.http is not None
    forget(person, provider)
    refuse(person, person.sign_in(provider, issuer), "another provider (iss)")
    issuer.answers_iss = True
    person.sign_in(provider, issuer)
    assert "campanero-oidc-person" in person.cookies
    providers.reset()


def forget(person: Person, provider: dict[str, Any]) -> None:
    """Have the service read the documents of a provider anew, as the test of the settings page does."""
    owner = Person(person.http.url)
    owner.post("/login", email=EMAIL, password=PASSWORD)
    owner.post(f"/settings/sign-in/{provider['id']}/test")


def test_errors_of_the_provider(person: Person, work: dict[str, Any], issuer: HostileProvider) -> None:
    """They are shown in plain words, without markup of the provider."""
    url = person.begin(work)
    answer = {"error": "access_denied", "state": issuer.authorize(url)["state"]}
    refuse(person, person.come_back(work, answer), "The sign-in was cancelled at the provider")
    state = issuer.authorize(person.begin(work))["state"]
    response = person.come_back(work, {"error": "server_error", "error_description": "<b>no</b>", "state": state})
    refuse(person, response, "did not accept the sign-in: <b>no</b>")
    assert "<b>no</b>" not in response.text
    answer = issuer.authorize(person.begin(work)) | {"code": "another"}
    refuse(person, person.come_back(work, answer), "grant request is invalid")


def test_unknown_people_prove_nothing(
    person: Person, server: Server, work: dict[str, Any], issuer: HostileProvider, owner: Client
) -> None:
    """The verified address of the owner neither signs in nor links: the password must be entered, and be right."""
    before = owner.get("/user/identities").headers["x-total-count"]
    response = person.sign_in(work, issuer, sub="stranger", email=EMAIL)
    path = response.headers["location"]
    assert not person.has_session
    for form in ({"email": EMAIL, "password": "wrong password"}, {"email": "nobody@x.example", "password": PASSWORD}):
        response = person.post(path, **form)
        assert response.status == 422 and "is wrong" in text_of(response)
    assert not person.has_session
    assert owner.get("/user/identities").headers["x-total-count"] == before
    other = Person(server.url)
    other.cookies["campanero-oidc-person"] = person.cookies["campanero-oidc-person"][:-2] + "AA"
    assert other.post(path, email=EMAIL, password=PASSWORD).status == 422 and not other.has_session
    # The sealed request of a sign-in is not a sealed person, and that of one provider is none of another
    other.begin(work)
    other.cookies["campanero-oidc-person"] = other.cookies["campanero-oidc"]
    assert other.post(path, email=EMAIL, password=PASSWORD).status == 422 and not other.has_session


def test_redirects_stay_here(
    person: Person, work: dict[str, Any], issuer: HostileProvider, linked: str
) -> None:  # fmt: skip
    """Neither a path of another site nor a long one is followed after the sign-in."""
    for path in ("//evil.example/", "https://evil.example/", "/\\evil.example", "/" + "x" * 3000):
        answer = issuer.authorize(person.begin(work, path), sub=linked)
        assert person.come_back(work, answer).headers["location"] == "/"
        person.cookies.clear()


def test_microsoft(person: Person, server: Server, providers: HostileProviders, add_provider: AddProvider) -> None:
    """The issuer has the tenant of the token, a key signs for its own issuer, and an address counts if it is owned."""
    issuer = providers["login.microsoftonline.com"]
    provider = add_provider(
        "https://login.microsoftonline.com/organizations/v2.0", name="Microsoft", domains=["bakery.example"]
    )  # fmt: skip
    own = f"https://login.microsoftonline.com/{TENANT}/v2.0"
    issuer.claims = {"iss": own, "tid": TENANT}
    refuse(person, person.sign_in(provider, issuer, tid="99999999-2222-3333-4444-555555555555"), "(iss)")
    refuse(person, person.sign_in(provider, issuer, tid=None), "(tid)")
    refuse(person, person.sign_in(provider, issuer, tid="../../evil"), "(tid)")
    refuse(person, person.sign_in(provider, issuer, iss="https://login.microsoftonline.com/{tenantid}/v2.0"), "(iss)")
    issuer.published = [public_jwk(issuer.key, "key-1", issuer="https://login.microsoftonline.com/other/v2.0")]
    forget(person, provider)
    refuse(person, person.sign_in(provider, issuer), "(iss)")
    issuer.published = [public_jwk(issuer.key, "key-1", issuer=issuer.issuer)]
    forget(person, provider)
    # `email_verified` is worth nothing there: any administrator enters any address
    person.sign_in(provider, issuer, email="eve@bakery.example", email_verified=True)
    assert "campanero-oidc-person" in person.cookies
    assert "has not verified your email address" in text_of(person.get(f"/login/oidc/{key_of(provider)}/finish"))
    owned = Person(server.url)
    owned.sign_in(provider, issuer, email="max@bakery.example", xms_edov=True, sub="max")
    assert owned.has_session
    # The same subject of another tenant is somebody else
    other_tenant = "22222222-2222-3333-4444-555555555555"
    stranger = Person(server.url)
    stranger.sign_in(
        provider, issuer, sub="max", tid=other_tenant, iss=own.replace(TENANT, other_tenant), email="max@x.example",
        xms_edov=True,
    )  # fmt: skip
    assert not stranger.has_session
    providers.reset()


def test_another_issuer_with_the_template_of_microsoft(
    providers: HostileProviders, add_provider: AddProvider, person: Person
) -> None:  # fmt: skip
    """Only Microsoft signs for many issuers; another provider that claims it is refused."""
    issuer = providers["other.example"]
    issuer.issuer = "https://other.example/{tenantid}/v2.0"
    provider = add_provider("https://other.example", name="Template")
    forget(person, provider)
    response = person.get(f"/login/oidc/{key_of(provider)}")
    assert response.status == 422 and "The provider calls itself" in text_of(response)
    issuer.issuer = "https://other.example"
    providers.reset()
