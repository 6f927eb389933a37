"""The records that a domain needs in DNS: what each says, what it is for, and how it was last seen."""

import ipaddress
import re
from typing import Any, Literal

import idna
import msgspec

from appliance.core import addresses
from appliance.sending.delivery import groups
from appliance.sending.domains import keys
from appliance.settings import config
from appliance.storage.models import SendingDomain

Valid = Literal["unknown", "valid", "invalid"]
Purpose = Literal[
    "ownership", "dkim", "dkim_next", "dkim_second", "dkim_previous", "return_path", "spf", "dmarc", "tracking"
]
DKIM = ("dkim", "dkim_next", "dkim_second", "dkim_previous")

# Names that no public DNS knows (RFC 6761, 6762, 8375; ICANN 2024 for .internal)
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".home.arpa", ".lan", ".localdomain")
# Private networks (RFC 1918, 6598, 4193)
_PRIVATE = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
# Whose servers deliver what one of these takes, by the end of its name
_RELAYS = {
    "amazonaws.com": "amazonses.com", "postmarkapp.com": "spf.mtasv.net", "mailgun.org": "mailgun.org",
    "sendgrid.net": "sendgrid.net", "sparkpostmail.com": "sparkpostmail.com", "mailjet.com": "spf.mailjet.com",
    "brevo.com": "spf.brevo.com", "sendinblue.com": "spf.brevo.com", "smtp2go.com": "spf.smtp2go.com",
    "gmail.com": "_spf.google.com", "google.com": "_spf.google.com", "office365.com": "spf.protection.outlook.com",
    "messagingengine.com": "spf.messagingengine.com", "mandrillapp.com": "spf.mandrillapp.com",
    "elasticemail.com": "_spf.elasticemail.com",
}  # fmt: skip


class Record(msgspec.Struct):
    """One record: what to enter, and what was found when it was last asked for.

    `value` is empty where this installation has no public name yet; `problem` then says what to set.
    """

    record_type: Literal["TXT", "MX", "CNAME"]
    name: str
    value: str
    priority: str
    purpose: Purpose
    required: bool
    valid: Valid = "unknown"
    found: list[str] = []
    problem: str | None = None
    checked_at: int | None = None

    def same(self, other: "Record") -> bool:
        """Return whether another one asks for the same."""
        return (self.record_type, self.name, self.value) == (other.record_type, other.name, other.value)


def of(domain: SendingDomain) -> list[Record]:
    """Return the records of a domain with what was last seen of each; those that changed since are unknown again."""
    seen = [msgspec.convert(one, Record) for one in domain.dns_records or []]
    found = []
    for record in _wanted(domain):
        known = next((one for one in seen if one.value and one.same(record)), record)
        found.append(msgspec.structs.replace(known, purpose=record.purpose, required=record.required))
    return found


def kept(found: list[Record]) -> list[dict[str, Any]]:
    """Return records as they are stored."""
    return [msgspec.to_builtins(one) for one in found]


def zone(wanted: list[Record]) -> str:
    """Write records as the lines of a zone file; no string in one is longer than 255 characters."""
    lines = []
    for one in wanted:
        if not one.value:
            continue
        if one.record_type == "TXT":
            parts = [one.value[at : at + 255] for at in range(0, len(one.value), 255)]
            value = " ".join(f'"{part}"' for part in parts)
        else:
            value = f"{one.priority} {one.value}.".lstrip()
        lines.append(f"{one.name}. 3600 IN {one.record_type} {value}")
    return "\n".join(lines)


def _wanted(domain: SendingDomain) -> list[Record]:
    name, email = domain.name, config.current().email
    direct = email.transport == "direct"
    signed = _signatures(domain)
    first = [one for one in signed if one.purpose == "dkim"]
    mail, links = _public(mail_host()), _public(link_host())
    term = sends()
    spf = f"v=spf1 {term} ~all" if term else ""
    is_private_relay = email.transport == "relay" and not is_public_name(email.relay.host)
    return [
        Record("TXT", f"_campanero.{name}", f"campanero-verification={domain.ownership_token}", "", "ownership", True),
        *first,
        _known(Record("MX", f"bounce.{name}", mail, "10", "return_path", direct), local_name()),
        _known(
            Record("TXT", f"bounce.{name}", spf, "", "spf", direct),
            _PRIVATE_RELAY.format(email.relay.host) if is_private_relay else local_name(),
        ),
        Record("TXT", f"_dmarc.{name}", f"v=DMARC1; p=none; rua=mailto:postmaster@{name}", "", "dmarc", False),
        _known(Record("CNAME", f"track.{name}", links, "", "tracking", False), local_name()),
        *(one for one in signed if one not in first),
    ]


_PRIVATE_RELAY = "the relay is at {}, which receivers cannot see: allow the public address that it sends from"


def _known(record: Record, problem: str) -> Record:
    """Return a record, with what is the matter where it has no value to enter yet."""
    return record if record.value else msgspec.structs.replace(record, problem=problem)


def local_name() -> str:
    """Say that this installation has no public name, and what to set."""
    return f"base_url is {config.base_url(config.current())}, which DNS cannot point to: set it to a public host name"


def _signatures(domain: SendingDomain) -> list[Record]:
    """Return the records of keys: the one that signs is required, others are wanted beside it for a while."""
    found = []
    for key in keys.published(domain):
        name, value = keys.record(key)
        purpose: Purpose
        if key.state == "retired":
            purpose = "dkim_previous"
        elif key.algorithm != keys.RSA:
            purpose = "dkim_second"
        else:
            purpose = "dkim" if key.state == "active" else "dkim_next"
        found.append(Record("TXT", name, value, "", purpose, purpose == "dkim"))
    return found


def link_host() -> str:
    """Return the host that links lead to."""
    return config.host(config.current())


def mail_host() -> str:
    """Return the name this installation has as a mail server: returned mail comes there."""
    return config.current().email.direct.helo.lower() or link_host()


def has_public_name() -> bool:
    """Return whether DNS can point to this installation at all."""
    return is_public_name(link_host())


def is_public_name(host: str) -> bool:
    """Return whether a host is a name that DNS may know: no address, no single word, no name of a local network."""
    host = host.lower().rstrip(".")
    return "." in host and not _is_address(host) and not host.endswith(_LOCAL_NAMES)


def _public(host: str) -> str:
    return host if is_public_name(host) else ""


def sends() -> str:
    """Return the SPF term that stands for whoever hands our mail to its recipients; "" where that is not known.

    A relay on this machine sends from the address that this installation has.
    """
    email = config.current().email
    host = email.relay.host.lower() if email.transport == "relay" else mail_host()
    included = next((by for end, by in _RELAYS.items() if host == end or host.endswith(f".{end}")), None)
    if included and email.transport == "relay":
        return f"include:{included}"
    if host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback):
        host = mail_host()
    if _is_address(host):
        address = ipaddress.ip_address(host)
        is_local = address.is_loopback or address.is_link_local or address.is_unspecified
        is_local = is_local or any(address in network for network in _PRIVATE if network.version == address.version)
        return "" if is_local else f"ip{address.version}:{host}"
    return f"a:{host}" if is_public_name(host) else ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# Names of domains: read from what people type, in the one form that DNS and mail servers use.

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# Below a domain stand records of ours, as `c12-0123._domainkey.`, and all of it has to fit in 253 characters
_MAX_CHARACTERS = 220


def read_domain(text: str) -> str:
    """Return a domain in lower case, international ones in their ASCII form; ValueError with what is wrong.

    A mailbox provider's own domain is reserved: nobody else can put records into it.
    """
    typed = text.strip().removesuffix(".")
    try:
        name = addresses.email(f"x@{typed}").key.partition("@")[2]
    except ValueError:
        raise ValueError("is invalid") from None
    labels = name.split(".")
    if len(name) > _MAX_CHARACTERS or len(labels) < 2 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("is invalid")
    if labels[-1].isdecimal() or _is_ip_address(name):
        raise ValueError("is invalid")
    if groups.is_shared(name):
        raise ValueError("is reserved")
    return name


def of_address(address: str) -> str:
    """Return the domain of an e-mail address in the form domains are kept in."""
    typed = address.rpartition("@")[2].lower()
    ascii_form = addresses.ascii_form(f"x@{typed}")
    return ascii_form.rpartition("@")[2].lower() if ascii_form else typed


def show_domain(name: str) -> str:
    """Return a domain as its owner writes it."""
    if "xn--" not in name:
        return name

    try:
        return idna.decode(name)
    except idna.IDNAError:
        return name


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
