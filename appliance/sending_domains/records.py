"""The records that a domain needs in DNS: what each says, what it is for, and how it was last seen."""

import ipaddress
from typing import Any, Literal

import msgspec

from appliance import config
from appliance.sending_domains import keys
from appliance.tables import SendingDomain

Valid = Literal["unknown", "valid", "invalid"]
Purpose = Literal[
    "ownership", "dkim", "dkim_next", "dkim_second", "dkim_previous", "return_path", "spf", "dmarc", "tracking"
]
DKIM = ("dkim", "dkim_next", "dkim_second", "dkim_previous")

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
    """One record: what to enter, and what was found when it was last asked for."""

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
        """Say whether another one asks for the same."""
        return (self.record_type, self.name, self.value) == (other.record_type, other.name, other.value)


def of(domain: SendingDomain) -> list[Record]:
    """Answer the records of a domain with what was last seen of each; those that changed since are unknown again."""
    seen = [msgspec.convert(one, Record) for one in domain.dns_records or []]
    found = []
    for record in _wanted(domain):
        known = next((one for one in seen if one.same(record)), record)
        found.append(msgspec.structs.replace(known, purpose=record.purpose, required=record.required))
    return found


def kept(found: list[Record]) -> list[dict[str, Any]]:
    """Answer records as they are stored."""
    return [msgspec.to_builtins(one) for one in found]


def zone(wanted: list[Record]) -> str:
    """Write records as the lines of a zone file; no string in one is longer than 255 characters."""
    lines = []
    for one in wanted:
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
    return [
        Record("TXT", f"_campanero.{name}", f"campanero-verification={domain.ownership_token}", "", "ownership", True),
        *first,
        Record("MX", f"bounce.{name}", mail_host(), "10", "return_path", direct),
        Record("TXT", f"bounce.{name}", f"v=spf1 {sends()} ~all", "", "spf", direct),
        Record("TXT", f"_dmarc.{name}", f"v=DMARC1; p=none; rua=mailto:postmaster@{name}", "", "dmarc", False),
        Record("CNAME", f"track.{name}", link_host(), "", "tracking", False),
        *(one for one in signed if one not in first),
    ]


def _signatures(domain: SendingDomain) -> list[Record]:
    """Answer the records of keys: the one that signs is required, others are wanted beside it for a while."""
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
    """Answer the host that links lead to."""
    return config.host(config.current())


def mail_host() -> str:
    """Answer the name this installation has as a mail server: returned mail comes there."""
    return config.current().email.direct.helo.lower() or link_host()


def has_public_name() -> bool:
    """Say whether DNS can point to this installation at all: an address of this machine alone is no name."""
    host = link_host()
    return "." in host and not _is_address(host)


def sends() -> str:
    """Answer the SPF term that stands for whoever hands our mail to its recipients."""
    email = config.current().email
    host = email.relay.host.lower() if email.transport == "relay" else mail_host()
    included = next((by for end, by in _RELAYS.items() if host == end or host.endswith(f".{end}")), None)
    if included and email.transport == "relay":
        return f"include:{included}"
    if _is_address(host):
        return f"ip{ipaddress.ip_address(host).version}:{host}"
    return f"a:{host}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
