"""Checks of a sending domain's DNS records against a real DNS server (D07), case by case."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dns import rdatatype
from dns.zone import from_text

from appliance.sending.delivery import dns_lookup
from appliance.sending.domains import dns_checks, records
from appliance.sending.domains.records import Record
from appliance.storage.models import SendingDomain
from tests.domain.home import Home
from tests.kit.dns import DnsServer, use_dns_servers

KEY = "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A" + "A" * 360
DKIM = f"v=DKIM1; k=rsa; p={KEY}"
OWNER = "campanero-verification=0123"
SELECTOR, BOUNCE = "c1-0000._domainkey.a.test", "bounce.a.test"
WANTED = {
    record.purpose: record
    for record in (
        Record("TXT", "_campanero.a.test", OWNER, "", "ownership", True),
        Record("TXT", SELECTOR, DKIM, "", "dkim", True),
        Record("MX", BOUNCE, "mail.us.test", "10", "return_path", False),
        Record("TXT", BOUNCE, "v=spf1 a:mail.us.test ~all", "", "spf", False),
        Record("TXT", "_dmarc.a.test", "v=DMARC1; p=none", "", "dmarc", False),
        Record("CNAME", "track.a.test", "us.test", "", "tracking", False),
    )
}
ZoneAction = Callable[[DnsServer], Any]


def txt(name: str, *values: str | tuple[str, ...]) -> ZoneAction:
    """Return an action that sets the TXT records of a name."""
    return lambda dns: dns.set(name, "TXT", *values)


def mx(*values: str) -> ZoneAction:
    """Return an action that sets the MX records of the return path."""
    return lambda dns: dns.set(BOUNCE, "MX", *values)


def both(*actions: ZoneAction) -> ZoneAction:
    """Return an action that runs all of these."""
    return lambda dns: [action(dns) for action in actions]


def includes(count: int) -> ZoneAction:
    """Return an action that makes our SPF record include a chain of `count` records."""
    chain = [txt(f"s{n}.test", f"v=spf1 include:s{n + 1}.test -all") for n in range(1, count)]
    return both(*chain, txt(f"s{count}.test", "v=spf1 ip4:192.0.2.1 -all"), txt(BOUNCE, "v=spf1 include:s1.test ~all"))


def loop(name: str) -> ZoneAction:
    """Return an action that makes two names CNAMEs of each other."""
    return both(lambda dns: dns.set(name, "CNAME", "x.test."), lambda dns: dns.set("x.test", "CNAME", f"{name}."))


def ours(dns: DnsServer) -> None:
    """Set the A records of our own host names."""
    dns.set("us.test", "A", "192.0.2.1")
    dns.set("mail.us.test", "A", "192.0.2.1")


def fails(name: str) -> ZoneAction:
    """Return an action that makes all queries for a name fail with SERVFAIL."""
    return lambda dns: dns.fail(name)


CASES: list[tuple[str, str, ZoneAction, str, str]] = [
    ("ownership", "right", txt("_campanero.a.test", OWNER), "valid", ""),
    ("ownership", "among others", txt("_campanero.a.test", "campanero-verification=theirs", OWNER), "valid", ""),
    ("ownership", "in two strings", txt("_campanero.a.test", (OWNER[:9], OWNER[9:])), "valid", ""),
    ("ownership", "behind a CNAME", both(lambda dns: dns.set("_campanero.a.test", "CNAME", "o.test."),
                                         txt("o.test", OWNER)), "valid", ""),
    ("ownership", "of another account", txt("_campanero.a.test", "campanero-verification=9"), "invalid", "differs"),
    ("ownership", "in quotation marks", txt("_campanero.a.test", f'"{OWNER}"'), "invalid", "quotation marks"),
    ("ownership", "the domain twice", txt("_campanero.a.test.a.test", OWNER), "invalid", "enter only _campanero"),
    ("ownership", "missing", both(), "invalid", "no TXT record yet"),
    ("ownership", "a server that fails", fails("_campanero.a.test"), "unknown", "SERVFAIL"),
    ("ownership", "a circle", loop("_campanero.a.test"), "invalid", "form a loop"),
    ("ownership", "a server that is silent", lambda dns: dns.silence("_campanero.a.test"), "unknown", "no DNS server"),
    ("dkim", "right, split by the server", txt(SELECTOR, DKIM), "valid", ""),
    ("dkim", "split oddly", txt(SELECTOR, (DKIM[:20], DKIM[20:21], DKIM[21:240], DKIM[240:])), "valid", ""),
    ("dkim", "with spaces, other order, unknown tags", txt(
        SELECTOR, (f"k=rsa ; t=s; n=note; p = {KEY[:100]} ", f" {KEY[100:300]}", f"{KEY[300:]} ;")), "valid", ""),
    ("dkim", "without k", txt(SELECTOR, f"v=DKIM1; p={KEY}"), "valid", ""),
    ("dkim", "another key", txt(SELECTOR, f"v=DKIM1; p={KEY.lower()}"), "invalid", "the key differs"),
    ("dkim", "cut off", txt(SELECTOR, f"v=DKIM1; k=rsa; p={KEY[:230]}"), "invalid", "cut off after 230 of 392"),
    ("dkim", "revoked", txt(SELECTOR, "v=DKIM1; p="), "invalid", "revoked"),
    ("dkim", "no key at all", txt(SELECTOR, "v=DKIM1"), "invalid", "it has no p="),
    ("dkim", "another version", txt(SELECTOR, f"v=DKIM2; p={KEY}"), "invalid", "v=DKIM2"),
    ("dkim", "another kind", txt(SELECTOR, f"v=DKIM1; k=ed25519; p={KEY}"), "invalid", "k=ed25519"),
    ("dkim", "for sha1 only", txt(SELECTOR, f"v=DKIM1; h=sha1; p={KEY}"), "invalid", "sha256"),
    ("dkim", "not for mail", txt(SELECTOR, f"v=DKIM1; s=other; p={KEY}"), "invalid", "email"),
    ("dkim", "two records", txt(SELECTOR, DKIM, "v=DKIM1; p=x"), "invalid", "there are 2 records"),
    ("dkim", "missing", both(), "invalid", "no TXT record yet"),
    ("return_path", "right", mx("10 mail.us.test."), "valid", ""),
    ("return_path", "another number", mx("5 MAIL.us.test."), "valid", ""),
    ("return_path", "a second one behind", mx("10 mail.us.test.", "20 b.test."), "valid", ""),
    ("return_path", "another before", mx("10 mail.us.test.", "5 b.test."), "invalid", "a better preference"),
    ("return_path", "another beside", mx("10 mail.us.test.", "10 b.test."), "invalid", "the same or a better"),
    ("return_path", "elsewhere", mx("10 b.test."), "invalid", "another server"),
    ("return_path", "takes no mail", mx("0 ."), "invalid", "another"),
    ("spf", "right", txt(BOUNCE, "v=spf1 a:mail.us.test ~all"), "valid", ""),
    ("spf", "more than that, and other texts", txt(BOUNCE, "v=spf1 mx +a:MAIL.us.test -all", "hello"), "valid", ""),
    ("spf", "by address", both(ours, txt(BOUNCE, "v=spf1 ip4:192.0.2.0/24 -all")), "valid", ""),
    ("spf", "by another address", both(ours, txt(BOUNCE, "v=spf1 ip4:198.51.100.0/24 -all")), "invalid", "a:mail"),
    ("spf", "included", both(txt("s.test", "v=spf1 a:mail.us.test -all"), txt(BOUNCE, "v=spf1 include:s.test -all")),
     "valid", ""),
    ("spf", "redirected", both(txt("s.test", "v=spf1 a:mail.us.test -all"), txt(BOUNCE, "v=spf1 redirect=s.test")),
     "valid", ""),
    ("spf", "not us of all people", txt(BOUNCE, "v=spf1 -a:mail.us.test ?ip4:192.0.2.1 ~all"), "invalid", "not have"),
    ("spf", "not those who include us", both(txt("s.test", "v=spf1 a:mail.us.test"), txt(
        BOUNCE, "v=spf1 -include:s.test ~all")), "invalid", "does not have"),
    ("spf", "without us", txt(BOUNCE, "v=spf1 mx -all"), "invalid", "does not have a:mail.us.test"),
    ("spf", "two records", txt(BOUNCE, "v=spf1 a:mail.us.test -all", "v=spf1 mx -all"), "invalid", "2 SPF records"),
    ("spf", "ten look-ups", both(ours, includes(10)), "valid", ""),
    ("spf", "eleven look-ups", both(ours, includes(11)), "invalid", "more than 10"),
    ("spf", "includes itself", txt(BOUNCE, f"v=spf1 a:mail.us.test include:{BOUNCE} -all"), "invalid", "more than 10"),
    ("spf", "includes nothing", txt(BOUNCE, "v=spf1 a:mail.us.test include:no.test -all"), "invalid", "no SPF record"),
    ("spf", "includes what fails", both(fails("s.test"), txt(BOUNCE, "v=spf1 include:s.test -all")),
     "unknown", "SERVFAIL"),
    ("spf", "everybody", txt(BOUNCE, "v=spf1 a:mail.us.test +all"), "invalid", "allows every server"),
    ("spf", "no SPF among the texts", txt(BOUNCE, "spf1 a:mail.us.test"), "invalid", "no SPF record"),
    ("dmarc", "ours", txt("_dmarc.a.test", "v=DMARC1; p=none; rua=mailto:postmaster@a.test"), "valid", ""),
    ("dmarc", "stricter", txt("_dmarc.a.test", "v=DMARC1;p=reject;aspf=s;adkim=s"), "valid", ""),
    ("dmarc", "with pct", txt("_dmarc.a.test", "v=DMARC1; p=quarantine; pct=20"), "valid", "pct is obsolete"),
    ("dmarc", "no policy", txt("_dmarc.a.test", "v=DMARC1; rua=mailto:x@a.test"), "invalid", "has no policy"),
    ("dmarc", "unknown policy", txt("_dmarc.a.test", "v=DMARC1; p=block"), "invalid", "its policy is block"),
    ("dmarc", "two records", txt("_dmarc.a.test", "v=DMARC1; p=none", "v=DMARC1; p=reject"), "invalid", "2 DMARC"),
    ("dmarc", "other texts", txt("_dmarc.a.test", "hello"), "invalid", "no DMARC record yet"),
    ("dmarc", "missing", both(), "invalid", "no DMARC record yet"),
    ("dmarc", "a server that fails", fails("_dmarc.a.test"), "unknown", "SERVFAIL"),
    ("tracking", "right", lambda dns: dns.set("track.a.test", "CNAME", "us.test."), "valid", ""),
    ("tracking", "through another name", both(ours, lambda dns: dns.set("track.a.test", "CNAME", "c.test."),
                                              lambda dns: dns.set("c.test", "CNAME", "us.test.")), "valid", ""),
    ("tracking", "flattened", both(ours, lambda dns: dns.set("track.a.test", "A", "192.0.2.1")), "valid", ""),
    ("tracking", "elsewhere", both(ours, lambda dns: dns.set("track.a.test", "CNAME", "b.test.")), "invalid", "host"),
    ("tracking", "others", both(ours, lambda dns: dns.set("track.a.test", "A", "192.0.2.9")), "invalid", "host"),
    ("tracking", "missing", both(), "invalid", "no CNAME record yet"),
    ("tracking", "a circle", loop("track.a.test"), "invalid", "form a loop"),
    ("tracking", "a server that fails", fails("track.a.test"), "unknown", "SERVFAIL"),
]  # fmt: skip


@pytest.fixture(scope="module")
def dns_server() -> Iterator[DnsServer]:
    """Yield one DNS server for the module."""
    with DnsServer() as server:
        yield server


@pytest.fixture
def zone(dns_server: DnsServer) -> Iterator[DnsServer]:
    """Yield the empty DNS server, set as the resolver of this process."""
    dns_server.clear()
    with use_dns_servers(dns_server.address):
        yield dns_server


@pytest.mark.parametrize(
    ("purpose", "case", "fill_zone", "valid", "problem"), CASES, ids=[f"{c[0]}: {c[1]}" for c in CASES]
)
def test_check_records(
    zone: DnsServer, purpose: str, case: str, fill_zone: ZoneAction, valid: str, problem: str
) -> None:
    """Each case gives its validity and problem text, and an invalid record shows the values present in DNS."""
    fill_zone(zone)
    (result,) = dns_checks.check_records(
        [WANTED[purpose]], "a.test", 0.5 if "silent" in case else dns_checks.TIMEOUT_SECONDS
    )
    assert (result.valid, problem in (result.problem or "")) == (valid, True), result
    assert (result.problem is None) == (problem == "")
    assert result.checked_at is not None
    if valid == "invalid" and "no" not in problem.split() and "loop" not in problem and "enter only" not in problem:
        assert result.found, result


def test_slow_dns_servers_time_out(zone: DnsServer) -> None:
    """A chain of slow SPF includes or CNAMEs gets one timeout in all, not one for each name."""
    includes(9)(zone)
    for number in range(1, 10):
        zone.delay(f"s{number}.test", 0.3)
    (result,) = dns_checks.check_records([WANTED["spf"]], "a.test", 1)
    assert result.valid == "unknown", result
    for number in range(20):
        zone.set(f"n{number}.test", "CNAME", f"n{number + 1}.test.")
        zone.delay(f"n{number}.test", 0.3)
    zone.follows_cnames = False
    assert dns_lookup.lookup("n0.test", "TXT", timeout_seconds=1).cause == "timeout"


def test_a_subdomain_inherits_the_dmarc_policy(zone: DnsServer) -> None:
    """A subdomain inherits the DMARC policy of its parent domain, namely `sp` if there is one."""
    expected = Record("TXT", "_dmarc.news.a.test", "v=DMARC1; p=none", "", "dmarc", False)
    zone.set("_dmarc.a.test", "TXT", "v=DMARC1; p=reject; sp=quarantine")
    (result,) = dns_checks.check_records([expected], "news.a.test")
    assert (result.valid, result.problem) == ("valid", "inherited from a.test")
    zone.set("_dmarc.a.test", "TXT", "v=DMARC1; p=reject; sp=all")
    assert dns_checks.check_records([expected], "news.a.test")[0].valid == "invalid"
    assert zone.query_count("_dmarc.test") == 0


def test_spf_term_of_the_mail_server(home: Home) -> None:
    """A well-known service is included by its SPF record, any other host named by `a:`, `ip4:` or `ip6:`."""
    for host, term in {
        "email-smtp.eu-west-1.amazonaws.com": "include:amazonses.com",
        "smtp.postmarkapp.com": "include:spf.mtasv.net",
        "mail.bakery.example": "a:mail.bakery.example",
        "notsendgrid.net": "a:notsendgrid.net",
        "192.0.2.25": "ip4:192.0.2.25",
        "2001:db8::25": "ip6:2001:db8::25",
    }.items():
        home.configure(email__transport="relay", email__relay__host=host)
        assert records.get_spf_term() == term
    home.configure(base_url="https://mail.us.test:8443", email__direct__helo="")
    assert (records.get_spf_term(), records.get_mail_host(), records.has_public_name()) == (
        "a:mail.us.test",
        "mail.us.test",
        True,
    )
    home.configure(base_url="http://192.0.2.1:8080")
    assert not records.has_public_name()


def test_write_zone_file() -> None:
    """dnspython parses the zone file to the same records; long texts are split into strings of 255 bytes."""
    zone = from_text(
        records.write_zone_file(list(WANTED.values())), origin="test.", relativize=False, check_origin=False
    )
    values = {(str(name), rdatatype.to_text(data.rdtype)): str(data) for name, _, data in zone.iterate_rdatas()}
    assert values[f"{SELECTOR}.", "TXT"] == f'"{DKIM[:255]}" "{DKIM[255:]}"'
    assert values[f"{BOUNCE}.", "MX"] == "10 mail.us.test."
    assert values["track.a.test.", "CNAME"] == "us.test."
    assert len(values) == 6


def test_garbage_in_dns_is_reported_as_invalid(zone: DnsServer) -> None:
    """Garbage in DNS gives an invalid result whose values are printable and at most 1,000 characters long."""
    junk = [
        "=;=;;p",
        "v=spf1 include: redirect= ip4:x ip4:1.2.3.4/99 %{i} :",
        "v=DMARC1;;;=p",
        "\x07<script>",
        "k" * 5000,
        "",
    ]
    for record in WANTED.values():
        zone.set(record.name, "TXT", *junk)
    zone.set(BOUNCE, "MX", "65535 .")
    zone.set("track.a.test", "CNAME", "<b>.test.")
    for result in dns_checks.check_records(list(WANTED.values()), "a.test"):
        assert result.valid == "invalid", result
        assert all(len(text) <= 1000 and text.isprintable() for text in [*result.found, result.problem or ""])


@pytest.mark.parametrize(
    ("base_url", "transport", "relay", "mx", "spf", "cname"),
    [
        ("http://127.0.0.1:8080", "capture", "", "", "", ""),
        ("http://localhost:8080", "direct", "", "", "", ""),
        ("http://192.168.1.20:8080", "direct", "", "", "", ""),
        ("http://mail.home.arpa", "direct", "", "", "", ""),
        ("http://[::1]:8080", "relay", "127.0.0.1", "", "", ""),
        ("https://mail.us.test", "relay", "10.0.0.5", "mail.us.test", "", "mail.us.test"),
        ("https://mail.us.test", "relay", "postfix", "mail.us.test", "", "mail.us.test"),
        ("https://mail.us.test", "relay", "localhost", "mail.us.test", "v=spf1 a:mail.us.test ~all", "mail.us.test"),
        ("http://127.0.0.1:8080", "relay", "smtp.us.test", "", "v=spf1 a:smtp.us.test ~all", ""),
    ],
)  # fmt: skip
def test_records_never_contain_private_hosts(
    home: Home, base_url: str, transport: str, relay: str, mx: str, spf: str, cname: str
) -> None:
    """Without a public host a record has no value, is not checked, names the setting, and is not in the zone file."""
    home.configure(base_url=base_url, email__transport=transport, email__relay__host=relay, email__direct__helo="")
    domain = SendingDomain(id=1, name="a.test", ownership_token="t", dns_records=[])
    records_by_purpose = {record.purpose: record for record in records.get_records(domain)}
    assert (
        records_by_purpose["return_path"].value,
        records_by_purpose["spf"].value,
        records_by_purpose["tracking"].value,
    ) == (mx, spf, cname)
    waiting = [record for record in records_by_purpose.values() if not record.value]
    for record in dns_checks.check_records(waiting, "a.test"):
        assert record.valid == "unknown" and record.problem
        assert "base_url" in record.problem or relay in record.problem
    zone = records.write_zone_file(list(records_by_purpose.values()))
    assert not any(word in zone for word in ("127.0.0.1", "localhost", "192.168.", "10.0.0.", "::1", "home.arpa"))
    assert zone.count("\n") + 1 == len([record for record in records_by_purpose.values() if record.value])


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("anna@blumen-weber.de", "Blumen Weber"), ("ana@mail.juniper-salt.co.uk", "Juniper Salt"),
        ("a@xn--bckerei-5wa.de", "Bäckerei"), ("anna@GMAIL.com", None), ("anna@hotmail.de", None),
        ("anna@posteo.de", None), ("192.168.1.20", None), ("localhost", None), ("news.lan", None), ("", None),
    ],
)  # fmt: skip
def test_organisations_are_named_after_their_domain(address: str, name: str | None) -> None:
    """The name comes from the registered domain; mailbox providers and local hosts have none."""
    assert records.name_organisation(address) == name
