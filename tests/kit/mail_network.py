"""Mail servers of several domains on loopback addresses, all on one port, and a DNS server that leads to them."""

from contextlib import ExitStack
from typing import Any, Self

from tests.kit.dns import DnsServer
from tests.kit.smtp import SmtpServer

# The loopback addresses of the mail servers, which the server under test is allowed to reach
_MACHINES = tuple(f"127.0.1.{number}" for number in range(1, 60))


class MailNetwork:
    """Mail servers at 127.0.1.x and their DNS records; use it as a context manager.

    For example::

        with MailNetwork() as network:
            gmail = network.mail("gmail-smtp-in.l.google.com", "gmail.com", "shop.example")
            server = fresh_server(env=network.env)
    """

    def __init__(self) -> None:
        self.dns = DnsServer()
        self.servers: dict[str, SmtpServer] = {}
        self.hosts: dict[str, str] = {}
        self.port = 0  # the port of all mail servers
        self._stack = ExitStack()

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of a server that delivers directly to these servers, with quick retries."""
        email = "CAMPANERO_EMAIL__"
        return self.dns.env | {
            f"{email}TRANSPORT": "direct", f"{email}DIRECT__PORT": str(self.port),
            f"{email}DIRECT__HELO": "mail.bakery.example", f"{email}DIRECT__WARM_UP": "false",
            f"{email}ALLOW_UNVERIFIED_DOMAINS": "true", f"{email}RETRY_AFTER": "1,1,1", f"{email}REPLY_TIMEOUT": "5s",
            f"{email}CONNECT_TIMEOUT": "2s", f"{email}COMMAND_TIMEOUT": "5s", f"{email}PROBE_AFTER": "1s",
            f"{email}CONNECTIONS": "8", f"{email}SLOW_DOWN": "1s",
            "CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": ",".join(_MACHINES),
            "CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__SENDS_PER_MINUTE": "0",
        }  # fmt: skip

    def host(self, name: str) -> str:
        """Set the address of a host name; no server listens there yet. Returns the address."""
        address = self.hosts[name] = _MACHINES[len(self.hosts)]
        self.dns.set(name, "A", address)
        return address

    def server(self, name: str, **options: Any) -> SmtpServer:
        """Start a mail server with this host name, and set its address if it has none."""
        address = self.hosts.get(name) or self.host(name)
        server = self.servers[name] = SmtpServer(host=address, port=self.port, **options)
        return self._stack.enter_context(server)

    def mx(self, domain: str, *hosts: str) -> None:
        """Set the MX records of a domain, in order of preference."""
        self.dns.set(domain, "MX", *(f"{10 * (number + 1)} {host}." for number, host in enumerate(hosts)))

    def mail(self, name: str, *domains: str, **options: Any) -> SmtpServer:
        """Start a mail server with this host name, and make it the MX of these domains."""
        server = self.server(name, **options)
        for domain in domains:
            self.mx(domain, name)
        return server

    def __enter__(self) -> Self:
        self._stack.enter_context(self.dns)
        # A port that is free at one of these addresses is nearly always free at the others
        self.port = self.server("first.example").port
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
