"""Sending domains over the API: names, records, scopes; the journeys test verification by DNS."""

import re

import pytest

from tests.kit.client import Client
from tests.kit.server import Server


def test_a_new_domain_lists_its_dns_records(api: Client) -> None:
    """A new domain has six DNS records, two of them required, all with the state `unknown`."""
    domain = api.post("/domains", {"domain": {"name": " News.Example.COM "}}).expect(201)
    assert (domain["name"], domain["provider"], domain["status"], domain["verified_at"]) == (
        "news.example.com", "smtp", "pending", None,
    )  # fmt: skip
    records = domain["dns_records"]
    assert [(record["record_type"], record["name"], record["priority"], record["required"]) for record in records] == [
        ("TXT", "_campanero.news.example.com", "", True),
        ("TXT", records[1]["name"], "", True),
        ("MX", "bounce.news.example.com", "10", False),
        ("TXT", "bounce.news.example.com", "", False),
        ("TXT", "_dmarc.news.example.com", "", False),
        ("CNAME", "track.news.example.com", "", False),
    ]
    assert re.fullmatch(r"c1-[0-9a-f]{4}\._domainkey\.news\.example\.com", records[1]["name"])
    assert re.fullmatch(r"v=DKIM1; k=rsa; p=[A-Za-z0-9+/]{392}", records[1]["value"])
    assert records[4]["value"].startswith("v=DMARC1; p=none; rua=mailto:") and "pct" not in records[4]["value"]
    assert all((record["valid"], record["found"], record["checked_at"]) == ("unknown", [], None) for record in records)
    # Without a public host name three records have no value yet
    assert [bool(record["value"]) for record in records] == [True, True, False, False, True, False]
    assert all(("base_url" in (record["problem"] or "")) != bool(record["value"]) for record in records)
    assert api.get(f"/domains/{domain['id']}").expect(200) == domain


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("MÜNCHEN.example", "xn--mnchen-3ya.example"), ("XN--MNCHEN-3YA.test", "xn--mnchen-3ya.test"),
        ("dot.example.", "dot.example"), ("a-b.c-d.test", "a-b.c-d.test"), ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
    ],
)  # fmt: skip
def test_domain_names_are_normalized(api: Client, typed: str, kept: str) -> None:
    """Names are stored in lower case, in ASCII form, without a trailing dot."""
    assert api.post("/domains", {"domain": {"name": typed}}).expect(201)["name"] == kept


@pytest.mark.parametrize(
    "name",
    [
        "https://a.test", "a.test:25", "a.test/x", "a@b.test", "localhost", "192.0.2.1", "[::1]", "2001:db8::1",
        "a..test", ".a.test", "-a.test", "a-.test", "a_b.test", "*.a.test", "a b.test", "a.test\n", "a.test\x00",
        "a" * 64 + ".test", ".".join(["abcdefgh"] * 27), "a.123", "x\u202ey.test", "a,b.test", "a.test;", "\ud800.test",
    ],
)  # fmt: skip
def test_invalid_domain_names_are_rejected(api: Client, name: str) -> None:
    """A URL, port, path, address or invalid host name is an error at `domain.name`."""
    error = api.post("/domains", {"domain": {"name": name}}).expect(422)
    assert error["validation_errors"] == {"domain.name": ["is invalid"]}


def test_a_domain_name_is_unique(api: Client) -> None:
    """A missing name, the name of an existing domain, and that of a mailbox provider are rejected."""
    assert api.post("/domains", {}).expect(422)["validation_errors"] == {"domain": ["can't be blank"]}
    assert api.post("/domains", {"domain": {}}).expect(422)["validation_errors"] == {"domain.name": ["can't be blank"]}
    api.post("/domains", {"domain": {"name": "twice.example", "provider": "x"}}).expect(201)
    for name in ("twice.example", "TWICE.example."):
        error = api.post("/domains", {"domain": {"name": name}}).expect(422)
        assert error["validation_errors"] == {"domain.name": ["has already been taken"]}
    error = api.post("/domains", {"domain": {"name": "gmail.com"}}).expect(422)
    assert error["validation_errors"] == {"domain.name": ["is reserved"]}


def test_a_domain_added_again_gets_new_keys(api: Client) -> None:
    """DELETE returns the domain, which is then a 404; added again it has a new token and DKIM key."""
    domain = api.post("/domains", {"domain": {"name": "again.example"}}).expect(201)
    assert domain["id"] in [row["id"] for row in api.get("/domains").expect(200)]
    assert api.delete(f"/domains/{domain['id']}").expect(200) == domain
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/verify"), ("POST", "/rotate_key")):
        api.send(method, f"/domains/{domain['id']}{path}").expect(404)
    again = api.post("/domains", {"domain": {"name": "again.example"}}).expect(201)
    for record, other in zip(domain["dns_records"][:2], again["dns_records"][:2], strict=True):
        assert record["value"] != other["value"]
    assert domain["dns_records"][1]["name"] != again["dns_records"][1]["name"] and again["id"] > domain["id"]


def test_scopes_of_domains(api: Client, server: Server) -> None:
    """`domains:read` may read, `domains:write` may change, and other scopes may do neither."""
    domain = api.post("/domains", {"domain": {"name": "scoped.example"}}).expect(201)
    path = f"/domains/{domain['id']}"
    scopes = ("domains:read", "contacts:read")
    reads, other = (server.client(server.new_key(scope, "--scope", scope)) for scope in scopes)
    assert reads.get(path).expect(200)["name"] == "scoped.example"
    for method, where in (
        ("POST", "/domains"),
        ("DELETE", path),
        ("POST", f"{path}/verify"),
        ("POST", f"{path}/rotate_key"),
    ):
        body = {"domain": {"name": "x.example"}} if where == "/domains" else None
        assert reads.send(method, where, body).expect(403)["required_scope"] == "domains:write"
    other.get(path).expect(403)
