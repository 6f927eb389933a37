"""A sending domain as a person sets it up: added, its records put into the stub DNS, looked up until it is verified."""

from typing import Any

import dns.resolver as dns_resolver

from tests.kit.client import Client
from tests.kit.dns import DnsServer

Domain = dict[str, Any]


def verified(api: Client, dns: DnsServer, name: str, *, without: tuple[str, ...] = ()) -> Domain:
    """Add a domain and its records, except those of some purposes, and return it once it is verified."""
    made = api.post("/domains", {"domain": {"name": name}}).expect(201)
    publish(dns, made, without=without)
    done: Domain = api.post(f"/domains/{made['id']}/verify").expect(200)
    if done["status"] != "verified":
        raise AssertionError(done)
    return done


def publish(dns: DnsServer, domain: Domain, *, without: tuple[str, ...] = ()) -> None:
    """Put the records that a domain asks for into the zone."""
    for one in domain["dns_records"]:
        if one["value"] and one["purpose"] not in without:
            dns.set(one["name"], one["record_type"], f"{one['priority']} {one['value']}".strip())


def text_of(dns: DnsServer, name: str) -> list[str]:
    """Ask the server for the texts of a name, each joined, as a verifier does; none if there is no such name."""
    resolver = dns_resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port, resolver.lifetime = [dns.host], dns.port, 10
    try:
        return [b"".join(one.strings).decode() for one in resolver.resolve(name, "TXT")]
    except (dns_resolver.NXDOMAIN, dns_resolver.NoAnswer):
        return []
