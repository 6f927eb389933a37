"""What DNS may hold in the place of a record, and what is said of it (D07): asked of a real server, case by case."""

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
from tests.kit.dns import DnsServer, asking

KEY = "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A" + "A" * 360
DKIM = f"v=DKIM1; k=rsa; p={KEY}"
OWNER = "campanero-verification=0123"
SELECTOR, BOUNCE = "c1-0000._domainkey.a.test", "bounce.a.test"
WANTED = {
    one.purpose: one
    for one in (
        Record("TXT", "_campanero.a.test", OWNER, "", "ownership", True),
        Record("TXT", SELECTOR, DKIM, "", "dkim", True),
        Record("MX", BOUNCE, "mail.us.test", "10", "return_path", False),
        Record("TXT", BOUNCE, "v=spf1 a:mail.us.test ~all", "", "spf", False),
        Record("TXT", "_dmarc.a.test", "v=DMARC1; p=none", "", "dmarc", False),
        Record("CNAME", "track.a.test", "us.test", "", "tracking", False),
    )
}
Enter = Callable[[DnsServer], Any]


def txt(name: str, *values: str | tuple[str, ...]) -> Enter:
    """Let a name have these texts."""
    return lambda dns: dns.set(name, "TXT", *values)


def mx(*values: str) -> Enter:
    """Let returned mail go to these."""
    return lambda dns: dns.set(BOUNCE, "MX", *values)


def many(*acts: Enter) -> Enter:
    """Do all of it."""
    return lambda dns: [act(dns) for act in acts]


def included(count: int) -> Enter:
    """Let our SPF include so many others, one within the other."""
    chain = [txt(f"s{n}.test", f"v=spf1 include:s{n + 1}.test -all") for n in range(1, count)]
    return many(*chain, txt(f"s{count}.test", "v=spf1 ip4:192.0.2.1 -all"), txt(BOUNCE, "v=spf1 include:s1.test ~all"))


def circle(name: str) -> Enter:
    """Let a name lead to another one and back."""
    return many(lambda dns: dns.set(name, "CNAME", "x.test."), lambda dns: dns.set("x.test", "CNAME", f"{name}."))


def ours(dns: DnsServer) -> None:
    """Let our own names have their address."""
    dns.set("us.test", "A", "192.0.2.1")
    dns.set("mail.us.test", "A", "192.0.2.1")


def fails(name: str) -> Enter:
    """Let every question about a name fail."""
    return lambda dns: dns.fail(name)


CASES: list[tuple[str, str, Enter, str, str]] = [
    ("ownership", "right", txt("_campanero.a.test", OWNER), "valid", ""),
    ("ownership", "among others", txt("_campanero.a.test", "campanero-verification=theirs", OWNER), "valid", ""),
    ("ownership", "in two strings", txt("_campanero.a.test", (OWNER[:9], OWNER[9:])), "valid", ""),
    ("ownership", "behind a CNAME", many(lambda dns: dns.set("_campanero.a.test", "CNAME", "o.test."),
                                         txt("o.test", OWNER)), "valid", ""),
    ("ownership", "of another account", txt("_campanero.a.test", "campanero-verification=9"), "invalid", "differs"),
    ("ownership", "in quotation marks", txt("_campanero.a.test", f'"{OWNER}"'), "invalid", "quotation marks"),
    ("ownership", "the domain twice", txt("_campanero.a.test.a.test", OWNER), "invalid", "enter only _campanero"),
    ("ownership", "missing", many(), "invalid", "no TXT record yet"),
    ("ownership", "a server that fails", fails("_campanero.a.test"), "unknown", "SERVFAIL"),
    ("ownership", "a circle", circle("_campanero.a.test"), "invalid", "form a loop"),
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
    ("dkim", "not for mail", txt(SELECTOR, f"v=DKIM1; s=other; p={KEY}"), "invalid", "e-mail"),
    ("dkim", "two records", txt(SELECTOR, DKIM, "v=DKIM1; p=x"), "invalid", "there are 2 records"),
    ("dkim", "missing", many(), "invalid", "no TXT record yet"),
    ("return_path", "right", mx("10 mail.us.test."), "valid", ""),
    ("return_path", "another number", mx("5 MAIL.us.test."), "valid", ""),
    ("return_path", "a second one behind", mx("10 mail.us.test.", "20 b.test."), "valid", ""),
    ("return_path", "another before", mx("10 mail.us.test.", "5 b.test."), "invalid", "a better preference"),
    ("return_path", "another beside", mx("10 mail.us.test.", "10 b.test."), "invalid", "the same or a better"),
    ("return_path", "elsewhere", mx("10 b.test."), "invalid", "elsewhere"),
    ("return_path", "takes no mail", mx("0 ."), "invalid", "elsewhere"),
    ("spf", "right", txt(BOUNCE, "v=spf1 a:mail.us.test ~all"), "valid", ""),
    ("spf", "more than that, and other texts", txt(BOUNCE, "v=spf1 mx +a:MAIL.us.test -all", "hello"), "valid", ""),
    ("spf", "by address", many(ours, txt(BOUNCE, "v=spf1 ip4:192.0.2.0/24 -all")), "valid", ""),
    ("spf", "by another address", many(ours, txt(BOUNCE, "v=spf1 ip4:198.51.100.0/24 -all")), "invalid", "a:mail"),
    ("spf", "included", many(txt("s.test", "v=spf1 a:mail.us.test -all"), txt(BOUNCE, "v=spf1 include:s.test -all")),
     "valid", ""),
    ("spf", "redirected", many(txt("s.test", "v=spf1 a:mail.us.test -all"), txt(BOUNCE, "v=spf1 redirect=s.test")),
     "valid", ""),
    ("spf", "not us of all people", txt(BOUNCE, "v=spf1 -a:mail.us.test ?ip4:192.0.2.1 ~all"), "invalid", "not have"),
    ("spf", "not those who include us", many(txt("s.test", "v=spf1 a:mail.us.test"), txt(
        BOUNCE, "v=spf1 -include:s.test ~all")), "invalid", "does not have"),
    ("spf", "without us", txt(BOUNCE, "v=spf1 mx -all"), "invalid", "does not have a:mail.us.test"),
    ("spf", "two records", txt(BOUNCE, "v=spf1 a:mail.us.test -all", "v=spf1 mx -all"), "invalid", "2 SPF records"),
    ("spf", "ten look-ups", many(ours, included(10)), "valid", ""),
    ("spf", "eleven look-ups", many(ours, included(11)), "invalid", "more than 10"),
    ("spf", "includes itself", txt(BOUNCE, f"v=spf1 a:mail.us.test include:{BOUNCE} -all"), "invalid", "more than 10"),
    ("spf", "includes nothing", txt(BOUNCE, "v=spf1 a:mail.us.test include:no.test -all"), "invalid", "no SPF record"),
    ("spf", "includes what fails", many(fails("s.test"), txt(BOUNCE, "v=spf1 include:s.test -all")),
     "unknown", "SERVFAIL"),
    ("spf", "everybody", txt(BOUNCE, "v=spf1 a:mail.us.test +all"), "invalid", "lets anybody"),
    ("spf", "no SPF among the texts", txt(BOUNCE, "spf1 a:mail.us.test"), "invalid", "no SPF record"),
    ("dmarc", "ours", txt("_dmarc.a.test", "v=DMARC1; p=none; rua=mailto:postmaster@a.test"), "valid", ""),
    ("dmarc", "stricter", txt("_dmarc.a.test", "v=DMARC1;p=reject;aspf=s;adkim=s"), "valid", ""),
    ("dmarc", "with pct", txt("_dmarc.a.test", "v=DMARC1; p=quarantine; pct=20"), "valid", "pct is obsolete"),
    ("dmarc", "no policy", txt("_dmarc.a.test", "v=DMARC1; rua=mailto:x@a.test"), "invalid", "has no policy"),
    ("dmarc", "unknown policy", txt("_dmarc.a.test", "v=DMARC1; p=block"), "invalid", "its policy is block"),
    ("dmarc", "two records", txt("_dmarc.a.test", "v=DMARC1; p=none", "v=DMARC1; p=reject"), "invalid", "2 DMARC"),
    ("dmarc", "other texts", txt("_dmarc.a.test", "hello"), "invalid", "no DMARC record yet"),
    ("dmarc", "missing", many(), "invalid", "no DMARC record yet"),
    ("dmarc", "a server that fails", fails("_dmarc.a.test"), "unknown", "SERVFAIL"),
    ("tracking", "right", lambda dns: dns.set("track.a.test", "CNAME", "us.test."), "valid", ""),
    ("tracking", "through another name", many(ours, lambda dns: dns.set("track.a.test", "CNAME", "c.test."),
                                              lambda dns: dns.set("c.test", "CNAME", "us.test.")), "valid", ""),
    ("tracking", "flattened", many(ours, lambda dns: dns.set("track.a.test", "A", "192.0.2.1")), "valid", ""),
    ("tracking", "elsewhere", many(ours, lambda dns: dns.set("track.a.test", "CNAME", "b.test.")), "invalid", "else"),
    ("tracking", "another address", many(ours, lambda dns: dns.set("track.a.test", "A", "192.0.2.9")), "invalid", "el"),
    ("tracking", "missing", many(), "invalid", "no CNAME record yet"),
    ("tracking", "a circle", circle("track.a.test"), "invalid", "form a loop"),
    ("tracking", "a server that fails", fails("track.a.test"), "unknown", "SERVFAIL"),
]  # fmt: skip


@pytest.fixture(scope="module")
def running() -> Iterator[DnsServer]:
    """A DNS server for all cases."""
    with DnsServer() as server:
        yield server


@pytest.fixture
def zone(running: DnsServer) -> Iterator[DnsServer]:
    """That server, empty, and this process asking it."""
    running.clear()
    with asking(running.address):
        yield running


@pytest.mark.parametrize(("purpose", "case", "enter", "valid", "words"), CASES, ids=[f"{c[0]}: {c[1]}" for c in CASES])
def test_what_is_there(zone: DnsServer, purpose: str, case: str, enter: Enter, valid: str, words: str) -> None:
    """Right, wrong with what was found, or not to be known: each in its own words."""
    enter(zone)
    (found,) = dns_checks.check_records(
        [WANTED[purpose]], "a.test", 0.5 if "silent" in case else dns_checks.TIMEOUT_SECONDS
    )
    assert (found.valid, words in (found.problem or "")) == (valid, True), found
    assert (found.problem is None) == (words == "")
    assert found.checked_at is not None
    if valid == "invalid" and "no" not in words.split() and "loop" not in words and "enter only" not in words:
        assert found.found, found


def test_slow_servers_of_others_end_a_check_in_time(zone: DnsServer) -> None:
    """Each of many names that are asked one after the other may be slow: together they get no more than their time."""
    included(9)(zone)
    for number in range(1, 10):
        zone.delay(f"s{number}.test", 0.3)
    (found,) = dns_checks.check_records([WANTED["spf"]], "a.test", 1)
    assert found.valid == "unknown", found
    for number in range(20):
        zone.set(f"n{number}.test", "CNAME", f"n{number + 1}.test.")
        zone.delay(f"n{number}.test", 0.3)
    zone.chases = False
    assert dns_lookup.lookup("n0.test", "TXT", timeout_seconds=1).cause == "timeout"


def test_a_policy_of_the_domain_above_holds(zone: DnsServer) -> None:
    """A domain below another one inherits its DMARC policy, the one for sub-domains if there is one."""
    wanted = Record("TXT", "_dmarc.news.a.test", "v=DMARC1; p=none", "", "dmarc", False)
    zone.set("_dmarc.a.test", "TXT", "v=DMARC1; p=reject; sp=quarantine")
    (found,) = dns_checks.check_records([wanted], "news.a.test")
    assert (found.valid, found.problem) == ("valid", "inherited from a.test")
    zone.set("_dmarc.a.test", "TXT", "v=DMARC1; p=reject; sp=all")
    assert dns_checks.check_records([wanted], "news.a.test")[0].valid == "invalid"
    assert zone.asked("_dmarc.test") == 0


def test_who_sends_is_named_as_receivers_know_it(home: Home) -> None:
    """A well-known service is included by its own SPF; another server is named, an address by its number."""
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


def test_a_zone_file_says_the_same() -> None:
    """Its lines, read by another program, are the records; long texts are in parts that DNS can hold."""
    zone = from_text(
        records.write_zone_file(list(WANTED.values())), origin="test.", relativize=False, check_origin=False
    )
    kept = {(str(name), rdatatype.to_text(data.rdtype)): str(data) for name, _, data in zone.iterate_rdatas()}
    assert kept[f"{SELECTOR}.", "TXT"] == f'"{DKIM[:255]}" "{DKIM[255:]}"'
    assert kept[f"{BOUNCE}.", "MX"] == "10 mail.us.test."
    assert kept["track.a.test.", "CNAME"] == "us.test."
    assert len(kept) == 6


def test_garbage_in_dns_breaks_nothing(zone: DnsServer) -> None:
    """Whatever strangers put there is shown, cut to a size, and is no fault of ours."""
    junk = [
        "=;=;;p",
        "v=spf1 include: redirect= ip4:x ip4:1.2.3.4/99 %{i} :",
        "v=DMARC1;;;=p",
        "\x07<script>",
        "k" * 5000,
        "",
    ]
    for one in WANTED.values():
        zone.set(one.name, "TXT", *junk)
    zone.set(BOUNCE, "MX", "65535 .")
    zone.set("track.a.test", "CNAME", "<b>.test.")
    for found in dns_checks.check_records(list(WANTED.values()), "a.test"):
        assert found.valid == "invalid", found
        assert all(len(text) <= 1000 and text.isprintable() for text in [*found.found, found.problem or ""])


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
def test_no_record_names_what_only_this_machine_reaches(
    home: Home, base_url: str, transport: str, relay: str, mx: str, spf: str, cname: str
) -> None:
    """Where there is no public name a record has no value, says what to set, is in no zone file and is not asked."""
    home.configure(base_url=base_url, email__transport=transport, email__relay__host=relay, email__direct__helo="")
    domain = SendingDomain(id=1, name="a.test", ownership_token="t", dns_records=[])
    found = {one.purpose: one for one in records.get_records(domain)}
    assert (found["return_path"].value, found["spf"].value, found["tracking"].value) == (mx, spf, cname)
    waiting = [one for one in found.values() if not one.value]
    for one in dns_checks.check_records(waiting, "a.test"):
        assert one.valid == "unknown" and one.problem
        assert "base_url" in one.problem or relay in one.problem
    zone = records.write_zone_file(list(found.values()))
    assert not any(word in zone for word in ("127.0.0.1", "localhost", "192.168.", "10.0.0.", "::1", "home.arpa"))
    assert zone.count("\n") + 1 == len([one for one in found.values() if one.value])
