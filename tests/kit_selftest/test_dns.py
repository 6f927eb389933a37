"""The DNS server of the test kit, queried by the appliance's resolver and by dnspython."""

import io
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from dns.message import Message, make_query
from dns.query import tcp, udp
from dns.rcode import NOERROR
from dns.resolver import Resolver

from appliance.sending.delivery import dns_lookup
from tests.kit.dns import DnsServer, system_has_ipv6, use_dns_servers

ask = partial(dns_lookup.lookup, timeout_seconds=3)


@pytest.fixture
def zone(dns: DnsServer) -> Iterator[DnsServer]:
    """Yield the DNS server, used by this process."""
    with use_dns_servers(dns.address):
        yield dns


def test_records_are_normalized(zone: DnsServer) -> None:
    """Split strings are joined, MX is `10 host`, names have no final dot, addresses are plain."""
    zone.set("example.com", "TXT", ("v=spf1 ", "-all"), "x" * 300)
    zone.set("example.com", "MX", "10 mail.example.com.", "0 .")
    zone.set("example.com", "A", "192.0.2.1")
    zone.set("1.2.0.192.in-addr.arpa", "PTR", "mail.example.com.")
    assert sorted(ask("Example.COM.", "TXT").records) == ["v=spf1 -all", "x" * 300]
    assert sorted(ask("example.com", "MX").records) == ["0 .", "10 mail.example.com"]
    assert ask("example.com", "A")[:2] == ("found", ("192.0.2.1",))
    assert dns_lookup.lookup_ptr("192.0.2.1").records == ("mail.example.com",)
    assert ask("example.com", "A").ttl == 300


def test_missing_names_missing_types_and_errors_differ(zone: DnsServer) -> None:
    """A missing name, a missing type, an empty name and a failure have different states."""
    zone.set("a.b.example.com", "A", "192.0.2.1")
    zone.fail("broken.example.com")
    zone.fail("refused.example.com", "REFUSED")
    assert ask("no.example.com", "A")[:3] == ("nxdomain", (), "no.example.com does not exist")
    assert ask("a.b.example.com", "TXT")[:3] == ("none", (), "a.b.example.com has no TXT record")
    assert ask("b.example.com", "A").state == "none"
    broken = ask("broken.example.com", "A")
    assert (broken.state, broken.cause, broken.error) == ("failed", "servfail", "the DNS server answered SERVFAIL")
    assert "REFUSED" in ask("refused.example.com", "A").error
    assert ask("a" * 64 + ".com", "A").cause == "name"
    assert ask("..", "A").cause == "name"


@pytest.mark.parametrize("chases", [True, False], ids=["whole chain", "first link only"])
def test_cname_chains_and_loops(zone: DnsServer, chases: bool) -> None:
    """The records at the end of a chain are returned; a loop is a failure of its own, whatever the server returns."""
    zone.follows_cnames = chases
    zone.set("a.test", "CNAME", "b.test.")
    zone.set("b.test", "CNAME", "c.test.")
    zone.set("c.test", "TXT", "end")
    zone.set("dead.test", "CNAME", "gone.test.")
    zone.set("x.test", "CNAME", "y.test.")
    zone.set("y.test", "CNAME", "x.test.")
    end = ask("a.test", "TXT")
    assert (end.state, end.records, end.canonical_name) == ("found", ("end",), "c.test")
    assert ask("a.test", "CNAME").records == ("b.test",)
    assert ask("dead.test", "TXT")[:3] == ("nxdomain", (), "gone.test does not exist; dead.test points there")
    loop = ask("x.test", "TXT")
    assert (loop.state, loop.cause) == ("failed", "loop")
    assert "loop" in loop.error


def test_loops_and_server_failures_differ(zone: DnsServer) -> None:
    """A chain that is too long is a loop; a server that only fails is `servfail`."""
    for number in range(20):
        zone.set(f"n{number}.test", "CNAME", f"n{number + 1}.test.")
    zone.set("n20.test", "TXT", "too far")
    assert ask("n0.test", "TXT").cause == "loop"
    zone.fail("x.test")
    assert ask("x.test", "TXT").cause == "servfail"


def test_long_responses_use_tcp(zone: DnsServer) -> None:
    """A response that does not fit into a datagram is requested again over TCP."""
    zone.set("long.test", "TXT", *(str(n) * 200 for n in range(10)))
    assert len(ask("long.test", "TXT").records) == 10
    assert {over for _, _, over in zone.queries} == {"udp", "tcp"}


def test_sequences_delays_and_silence(zone: DnsServer) -> None:
    """Records may change with each query; a silent server is a timeout."""
    zone.set_sequence("s.test", "TXT", ("one",), ("two",))
    assert [ask("s.test", "TXT").records[0] for _ in range(3)] == ["one", "two", "two"]
    assert zone.query_count("s.test", "TXT") == 3
    zone.delay("s.test", 0.2)
    assert ask("s.test", "TXT").state == "found"
    zone.silence("s.test")
    silent = dns_lookup.lookup("s.test", "TXT", timeout_seconds=0.3)
    assert (silent.cause, silent.error) == ("timeout", "no DNS server answered within 0.3 s")
    zone.clear_faults("s.test")
    assert ask("s.test", "TXT").state == "found"
    zone.remove("s.test")
    assert ask("s.test", "TXT").state == "nxdomain"


def test_publish_the_records_of_a_domain(zone: DnsServer) -> None:
    """The DNS records of a sending domain are published at once, or those of one purpose."""
    wanted = [
        {"record_type": "TXT", "name": "k._domainkey.a.test", "value": "x" * 400, "priority": "", "purpose": "dkim"},
        {"record_type": "MX", "name": "bounce.a.test", "value": "mail.test", "priority": "10", "purpose": "mx"},
    ]
    zone.publish({"dns_records": wanted}, "mx")
    assert (ask("bounce.a.test", "MX").records, ask("k._domainkey.a.test", "TXT").records) == (("10 mail.test",), ())
    zone.publish({"dns_records": wanted})
    assert ask("k._domainkey.a.test", "TXT").records == ("x" * 400,)


def test_the_next_server_is_used_if_one_fails(zone: DnsServer) -> None:
    """A failing or dead server is skipped; if all are dead, the look-up fails."""
    zone.set("a.test", "A", "192.0.2.1")
    with DnsServer() as failing, DnsServer() as ended:
        failing.fail("a.test")
        gone = ended.address
        with use_dns_servers(failing.address, zone.address):
            assert ask("a.test", "A").state == "found"
    with use_dns_servers(gone, zone.address):
        assert dns_lookup.lookup("a.test", "A", timeout_seconds=1.5).state == "found"
    with use_dns_servers(gone):
        assert dns_lookup.lookup("a.test", "A", timeout_seconds=0.1).state == "failed"


@pytest.mark.skipif(not system_has_ipv6(), reason="no ::1 here")
def test_dns_over_ipv6() -> None:
    """A server may have an IPv6 address in brackets."""
    with DnsServer("::1") as six, use_dns_servers(six.address):
        six.set("a.test", "AAAA", "2001:db8::1")
        assert ask("a.test", "AAAA").records == ("2001:db8::1",)


def test_system_servers_are_used_by_default() -> None:
    """Without configured servers those of the system are used; an invalid name causes no query."""
    with use_dns_servers():
        assert dns_lookup.get_configured_servers() == ()
        assert ask("..", "A").cause == "name"


def test_an_invalid_system_configuration_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid list of system servers is a failure of the look-up, and not of the name."""
    half = io.StringIO("nameserver 192.0.2\n")
    monkeypatch.setattr(Resolver.__init__, "__defaults__", (half, True))
    with use_dns_servers():
        response = ask("example.com", "MX")
    assert (response.state, response.cause) == ("failed", "unreachable") and "192.0.2" in response.error


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("9.9.9.9", ("9.9.9.9", 53)), ("9.9.9.9:5353", ("9.9.9.9", 5353)), ("[::1]:54", ("::1", 54)),
        ("::1", ("::1", 53)), ("[::1]", ("::1", 53)), ("dns.lan:53", ("dns.lan", 53)),
    ],
)  # fmt: skip
def test_parse_valid_servers(written: str, meant: tuple[str, int]) -> None:
    """`host`, `host:port` and IPv6 with or without brackets are parsed."""
    assert dns_lookup.parse_server(written) == meant


@pytest.mark.parametrize("wrong", ["", ":53", "a:b", "a:0", "a:70000", "[::1]53"])
def test_invalid_servers_are_rejected(wrong: str) -> None:
    """Any other value raises ValueError."""
    with pytest.raises(ValueError, match="host:port"):
        dns_lookup.parse_server(wrong)


@pytest.mark.parametrize("over", [udp, tcp])
def test_queries_of_another_client(dns: DnsServer, over: Callable[..., Message]) -> None:
    """The server responds to dnspython over UDP and TCP, and ignores invalid packets."""
    dns.set("plain.test", "TXT", 'quo"ted \\ text')
    assert dns.respond(b"garbage", "udp") is None
    reply = over(make_query("plain.test", "TXT", use_edns=False), dns.host, port=dns.port, timeout=5)
    assert reply.rcode() == NOERROR
    assert 'quo\\"ted' in str(reply.answer[0])
    assert dns.query_count("plain.test") == 1
