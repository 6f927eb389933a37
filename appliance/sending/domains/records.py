"""Build the DNS records that a sending domain needs, each with the result of its last check, and parse domain names."""

import ipaddress
import re
from typing import Any, Literal

import idna
import msgspec

from appliance.core import addresses
from appliance.core.i18n import gettext, gettext_stored
from appliance.sending.delivery import mx_routes
from appliance.sending.domains import keys
from appliance.sending.transports import TRANSPORTS
from appliance.settings import config, transports
from appliance.settings.schema import Email
from appliance.storage.models import SendingDomain

Validity = Literal["unknown", "valid", "invalid"]
Purpose = Literal[
    "ownership", "dkim", "dkim_next", "dkim_second", "dkim_previous", "return_path", "spf", "dmarc", "tracking"
]
DKIM = ("dkim", "dkim_next", "dkim_second", "dkim_previous")

# Suffixes of names that are never in public DNS (RFC 6761, 6762, 8375; ICANN 2024 for .internal)
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".home.arpa", ".lan", ".localdomain")
# Private networks (RFC 1918, 6598, 4193)
_PRIVATE_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
# The domain to include in SPF for a relay service, by the suffix of the relay's host name
_SPF_OF_RELAY = {
    "amazonaws.com": "amazonses.com", "postmarkapp.com": "spf.mtasv.net", "mailgun.org": "mailgun.org",
    "sendgrid.net": "sendgrid.net", "sparkpostmail.com": "sparkpostmail.com", "mailjet.com": "spf.mailjet.com",
    "brevo.com": "spf.brevo.com", "sendinblue.com": "spf.brevo.com", "smtp2go.com": "spf.smtp2go.com",
    "gmail.com": "_spf.google.com", "google.com": "_spf.google.com", "office365.com": "spf.protection.outlook.com",
    "messagingengine.com": "spf.messagingengine.com", "mandrillapp.com": "spf.mandrillapp.com",
    "elasticemail.com": "_spf.elasticemail.com",
}  # fmt: skip


class Record(msgspec.Struct):
    """A DNS record to add, and the result of its last check.

    `value` is the expected value; it is empty while this installation has no public name, and `problem` then says which
    setting to change. `found` are the values in DNS; `problem` may be a note on a valid record; `checked_at` is in ms.
    """

    record_type: Literal["TXT", "MX", "CNAME"]
    name: str
    value: str
    priority: str
    purpose: Purpose
    required: bool
    valid: Validity = "unknown"
    found: list[str] = []
    problem: str | None = None
    checked_at: int | None = None

    def is_same_record(self, record: "Record") -> bool:
        """Return whether another record has the same type, name and value."""
        return (self.record_type, self.name, self.value) == (record.record_type, record.name, record.value)


def get_records(domain: SendingDomain) -> list[Record]:
    """Return the records that a domain needs now, each with the result of its last check.

    A record whose value has changed since that check is unknown.
    """
    checked_records = [msgspec.convert(checked_record, Record) for checked_record in domain.dns_records or []]
    current_records = []
    for record in _build_records(domain):
        checked = next(
            (
                checked_record
                for checked_record in checked_records
                if checked_record.value and checked_record.is_same_record(record)
            ),
            record,
        )
        current_records.append(msgspec.structs.replace(checked, purpose=record.purpose, required=record.required))
    return current_records


def to_json(records: list[Record]) -> list[dict[str, Any]]:
    """Return records as JSON objects, for `SendingDomain.dns_records`."""
    return [msgspec.to_builtins(record) for record in records]


def write_zone_file(records: list[Record]) -> str:
    """Return records as lines of a zone file, without those that have no value.

    TXT values are split into strings of at most 255 characters (RFC 1035, 3.3).
    """
    lines = []
    for record in records:
        if not record.value:
            continue
        if record.record_type == "TXT":
            parts = [record.value[start : start + 255] for start in range(0, len(record.value), 255)]
            value = " ".join(f'"{chunk}"' for chunk in parts)
        else:
            value = f"{record.priority} {record.value}.".lstrip()
        lines.append(f"{record.name}. 3600 IN {record.record_type} {value}")
    return "\n".join(lines)


def _build_records(domain: SendingDomain) -> list[Record]:
    name, email = domain.name, config.current().email
    kinds = {transports.get_kind(key, email) for key in transports.list_keys(email)}
    direct = transports.DIRECT in kinds
    key_records = _dkim_records(domain)
    active_key_records = [key_record for key_record in key_records if key_record.purpose == "dkim"]
    mail, links = _public_or_empty(get_mail_host()), _public_or_empty(get_link_host())
    term = get_spf_term()
    spf = f"v=spf1 {term} ~all" if term else ""
    is_private_relay = email.transport == "relay" and not is_public_name(email.relay.host) and not email.transports
    # An HTTP API has a return path of its own, with its own SPF record.
    spf_records = (
        ()
        if kinds <= TRANSPORTS.keys()
        else (
            _with_problem(
                Record("TXT", f"bounce.{name}", spf, "", "spf", direct),
                _PRIVATE_RELAY % {"host": email.relay.host} if is_private_relay else describe_missing_public_name(),
            ),
        )
    )
    return [
        Record("TXT", f"_campanero.{name}", f"campanero-verification={domain.ownership_token}", "", "ownership", True),
        *active_key_records,
        _with_problem(
            Record("MX", f"bounce.{name}", mail, "10", "return_path", direct), describe_missing_public_name()
        ),
        *spf_records,
        Record("TXT", f"_dmarc.{name}", f"v=DMARC1; p=none; rua=mailto:postmaster@{name}", "", "dmarc", False),
        _with_problem(Record("CNAME", f"track.{name}", links, "", "tracking", False), describe_missing_public_name()),
        *(key_record for key_record in key_records if key_record not in active_key_records),
    ]


_PRIVATE_RELAY = gettext_stored(
    "the relay is at %(host)s, which receivers cannot see: allow the public address that it sends from"
)
_NO_PUBLIC_NAME = gettext_stored("base_url is %(url)s, which DNS cannot point to: set it to a public host name")


def _with_problem(record: Record, problem: str) -> Record:
    """Return a record, with `problem` set if it has no value."""
    return record if record.value else msgspec.structs.replace(record, problem=problem)


def describe_missing_public_name() -> str:
    """Return the problem of a record that needs a public host name while `base_url` has none."""
    return _NO_PUBLIC_NAME % {"url": config.base_url(config.current())}


def _dkim_records(domain: SendingDomain) -> list[Record]:
    """Return the records of a domain's published keys; only the record of the active RSA key is required."""
    dkim_records = []
    for key in keys.fetch_published_keys(domain):
        name, value = keys.txt_record(key)
        purpose: Purpose
        if key.state == "retired":
            purpose = "dkim_previous"
        elif key.algorithm != keys.RSA:
            purpose = "dkim_second"
        else:
            purpose = "dkim" if key.state == "active" else "dkim_next"
        dkim_records.append(Record("TXT", name, value, "", purpose, purpose == "dkim"))
    return dkim_records


def get_link_host() -> str:
    """Return the host of `base_url`, which tracking links lead to."""
    return config.base_host(config.current())


def get_mail_host() -> str:
    """Return the host name of this installation as a mail server, to which bounces are sent.

    It is `email.direct.helo`, or else the host of `base_url`.
    """
    return config.current().email.direct.helo.lower() or get_link_host()


def has_public_name() -> bool:
    """Return whether the host of `base_url` is a public DNS name."""
    return is_public_name(get_link_host())


def is_public_name(host: str) -> bool:
    """Return whether a host is a public DNS name: not an IP address, a single label or a name under `_LOCAL_NAMES`."""
    host = host.lower().rstrip(".")
    return "." in host and not _is_address(host) and not host.endswith(_LOCAL_NAMES)


def _public_or_empty(host: str) -> str:
    return host if is_public_name(host) else ""


def get_spf_term() -> str:
    """Return the SPF terms that allow the servers sending our mail, or an empty string if none can be derived.

    Each relay has a term, and direct delivery; HTTP APIs have return paths of their own.
    """
    email = config.current().email
    senders = [transports.build_settings(key, email) for key in transports.list_keys(email)]
    own = [sender for sender in senders if sender.transport not in TRANSPORTS] or [email]
    return " ".join(dict.fromkeys(filter(None, map(_get_spf_term, own))))


def _get_spf_term(email: Email) -> str:
    """Return the SPF term of one transport, or an empty string if it cannot be derived.

    The term is the `include:` of a known relay service, or the host or public IP address of the relay or, in direct
    delivery, of this installation. A relay on this machine is assumed to send from the host of this installation.
    """
    host = email.relay.host.lower() if email.transport == "relay" else get_mail_host()
    included = next(
        (spf_domain for suffix, spf_domain in _SPF_OF_RELAY.items() if host == suffix or host.endswith(f".{suffix}")),
        None,
    )
    if included and email.transport == "relay":
        return f"include:{included}"
    if host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback):
        host = get_mail_host()
    if _is_address(host):
        address = ipaddress.ip_address(host)
        is_local = address.is_loopback or address.is_link_local or address.is_unspecified
        is_local = is_local or any(
            address in network for network in _PRIVATE_NETWORKS if network.version == address.version
        )
        return "" if is_local else f"ip{address.version}:{host}"
    return f"a:{host}" if is_public_name(host) else ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# Domain names: user input is parsed into the lower-case ASCII form that DNS and mail servers use.

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# The records add prefixes such as `c12-0123._domainkey.`, and a whole name may have 253 characters (RFC 1035, 2.3.4)
_MAX_NAME_CHARACTERS = 220


def parse_domain(text: str) -> str:
    """Parse a domain name into its lower-case ASCII form.

    Raises ValueError with a predicate: "is invalid", or "is reserved" for the domain of a mailbox provider, to which
    its users cannot add records.
    """
    typed = text.strip().removesuffix(".")
    try:
        name = addresses.parse_email(f"x@{typed}").key.partition("@")[2]
    except ValueError:
        raise ValueError(gettext("is invalid")) from None
    labels = name.split(".")
    if len(name) > _MAX_NAME_CHARACTERS or len(labels) < 2 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(gettext("is invalid"))
    if labels[-1].isdecimal() or _is_ip_address(name):
        raise ValueError(gettext("is invalid"))
    if mx_routes.is_mailbox_provider(name):
        raise ValueError(gettext("is reserved"))
    return name


def domain_of_address(address: str) -> str:
    """Return the domain of an email address in lower case, in ASCII form if it can be converted."""
    typed = address.rpartition("@")[2].lower()
    ascii_form = addresses.to_ascii(f"x@{typed}")
    return ascii_form.rpartition("@")[2].lower() if ascii_form else typed


def display_domain(name: str) -> str:
    """Return a domain in its Unicode form, or unchanged if it cannot be decoded."""
    if "xn--" not in name:
        return name
    try:
        return idna.decode(name)
    except idna.IDNAError:
        return name


# Mailbox providers without a recipient group of their own, and ends of names that are only known in a local network
_OTHER_MAILBOX_PROVIDERS = frozenset(
    ("arcor.de", "bluewin.ch", "daum.net", "duck.com", "email.de", "free.fr", "freenet.de", "hanmail.net", "hey.com",
     "hushmail.com", "interia.pl", "laposte.net", "mailbox.org", "mailfence.com", "naver.com", "posteo.de",
     "posteo.net", "rediffmail.com", "runbox.com", "startmail.com", "tiscali.it", "tuta.com", "tutanota.com",
     "tutanota.de", "uol.com.br", "xs4all.nl", "ziggo.nl")
)  # fmt: skip
_LOCAL_ENDINGS = (".internal", ".invalid", ".lan", ".local", ".localhost", ".home.arpa")


def name_organisation(address: str) -> str | None:
    """Return a name for the organisation of an email address: `Juniper Salt` for `ana@mail.juniper-salt.co.uk`.

    None if the address is one of a mailbox provider, or its domain cannot be one of an organisation.
    """
    domain = mx_routes.domain_of(address).rstrip(".")
    if mx_routes.is_mailbox_provider(domain) or domain in _OTHER_MAILBOX_PROVIDERS:
        return None
    if "." not in domain or _is_ip_address(domain) or domain.endswith(_LOCAL_ENDINGS):
        return None
    label = display_domain(mx_routes.get_registered_domain(domain).partition(".")[0])
    return " ".join(word.capitalize() for word in label.split("-") if word)


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
