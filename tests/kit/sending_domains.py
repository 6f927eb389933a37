"""Set up a sending domain as a user does: add it, publish its records in the DNS server of the test, verify it."""

from typing import Any

import dns.resolver as dns_resolver

from tests.kit.client import Client
from tests.kit.dns import DnsServer

Domain = dict[str, Any]


def add_verified_domain(api: Client, dns: DnsServer, name: str, *, without: tuple[str, ...] = ()) -> Domain:
    """Add a domain, publish its records except those of the purposes in `without`, and return the verified domain."""
    domain = api.post("/domains", {"domain": {"name": name}}).expect(201)
    publish_records(dns, domain, without=without)
    verified_domain: Domain = api.post(f"/domains/{domain['id']}/verify").expect(200)
    if verified_domain["status"] != "verified":
        raise AssertionError(verified_domain)
    return verified_domain


def publish_records(dns: DnsServer, domain: Domain, *, without: tuple[str, ...] = ()) -> None:
    """Publish the records that a domain requires, except those of the purposes in `without`."""
    for record in domain["dns_records"]:
        if record["value"] and record["purpose"] not in without:
            dns.set(record["name"], record["record_type"], f"{record['priority']} {record['value']}".strip())


def lookup_txt(dns: DnsServer, name: str) -> list[str]:
    """Return the TXT records of a name, the strings of each joined; empty if the name does not exist."""
    resolver = dns_resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port, resolver.lifetime = [dns.host], dns.port, 10
    try:
        return [b"".join(answer.strings).decode() for answer in resolver.resolve(name, "TXT")]
    except (dns_resolver.NXDOMAIN, dns_resolver.NoAnswer):
        return []
