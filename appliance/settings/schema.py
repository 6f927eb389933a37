"""Every setting, declared once: name, type, default and one line of help.

`config.py` fills these from its five layers; `config.example.toml`, `campanero check` and the settings pages read the
same declarations.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field


def _help(text: str, **extra: Any) -> Meta:
    return Meta(description=text, extra=extra or None)


Duration = Annotated[str, Meta(pattern=r"^[0-9]+(s|m|h|d)$")]
Limited = Annotated[
    str, Meta(pattern=r"^[^\s/,]+( [0-9]+(\.[0-9]+)?/s)?( [1-9][0-9]*/h)?( [1-9][0-9]* connections?)?$")
]
Nameserver = Annotated[
    str,
    Meta(
        pattern=r"^(\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?|[0-9A-Fa-f:.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*|[^\s:\[\]]+(:[0-9]{1,5})?)$"
    ),
]
Country = Annotated[str, Meta(pattern=r"^[A-Za-z]{2}$")]
CountrySender = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z]{2} (\+[1-9][0-9]{6,14}|[1-9][0-9]{2,7}|(?=[0-9 ]*[A-Za-z])[A-Za-z0-9 ]{1,11})$"),
]
Port = Annotated[int, Meta(ge=1, le=65535)]


class Relay(Struct, frozen=True):
    """The SMTP server that takes our mail."""

    host: Annotated[str, _help("name or address of the SMTP server")] = ""
    port: Annotated[int, Meta(ge=1, le=65535, description="587 with starttls, 465 with tls")] = 587
    username: Annotated[str, _help("empty: no login")] = ""
    password: Annotated[str, _help("better in the environment than in a file", secret=True)] = ""
    tls: Annotated[
        Literal["none", "starttls", "tls"], _help("none, starttls or tls; a clear-text login happens only with none")
    ] = "starttls"


class Direct(Struct, frozen=True):
    """Delivery to the recipients' own servers."""

    port: Annotated[int, Meta(ge=1, le=65535, description="port of the recipients' servers")] = 25
    helo: Annotated[str, _help('name we greet with; "" = host of base_url')] = ""
    group_connections: Annotated[
        int, Meta(ge=1, le=20, description="to one provider's servers at most; it begins with fewer")
    ] = 20
    warm_up: Annotated[bool, _help("a new sending domain begins with few messages a day, more each good day")] = True
    mta_sts: Annotated[bool, _help("honour what recipients' domains say about encryption (RFC 8461)")] = True
    ipv6: Annotated[bool, _help("use IPv6 too; only where its addresses have names (PTR)")] = False
    probes: Annotated[
        list[str], _help("domains whose servers answer whether anything can be reached at all; [] = never ask")
    ] = field(default_factory=lambda: ["gmail.com", "outlook.com", "yahoo.com"])


class Hooks(Struct, frozen=True):
    """What mail services post about bounces and complaints; each door is closed (404) until its line is filled."""

    ses_topic: Annotated[
        str,
        Meta(
            pattern=r"^(arn:(aws|aws-cn|aws-us-gov):sns:[a-z0-9-]{1,40}:[0-9]{12}:[A-Za-z0-9_-]{1,256})?$",
            description="/hooks/ses: ARN of the SNS topic that Amazon SES publishes to",
        ),
    ] = ""
    postmark: Annotated[
        str, _help("/hooks/postmark: password in the URL (https://any:PASSWORD@...), or X-Hook-Secret", secret=True)
    ] = ""
    mailgun: Annotated[str, _help("/hooks/mailgun: the HTTP webhook signing key", secret=True)] = ""
    sendgrid: Annotated[str, _help("/hooks/sendgrid: the verification key of the signed event webhook")] = ""
    max_age: Annotated[
        Duration, _help("older signatures are refused; more lets a service repeat what it signed before a long outage")
    ] = "5m"


class Email(Struct, frozen=True):
    """How mail leaves."""

    transport: Annotated[
        Literal["capture", "relay", "direct"],
        _help(
            "capture keeps all mail in the built-in inbox; relay hands it to one SMTP server; direct signs and delivers"
        ),
    ] = "capture"
    connections: Annotated[int, Meta(ge=1, le=100, description="concurrent SMTP transactions")] = 4
    messages_per_connection: Annotated[int, Meta(ge=1, description="then a fresh connection is opened")] = 100
    rate_per_second: Annotated[float, Meta(ge=0, description="0 = unlimited")] = 0
    rate_per_hour: Annotated[int, Meta(ge=0, description="in any 60 minutes, over restarts too; 0 = unlimited")] = 0
    sender_limits: Annotated[
        list[Limited], _help('of sending domains: ["example.org 5/s 200/h 2 connections"], each part optional')
    ] = field(default_factory=list)
    recipient_limits: Annotated[
        list[Limited], _help('of who takes the mail, a large provider or a domain: ["google 10/s 4 connections"]')
    ] = field(default_factory=list)
    slow_down: Annotated[Duration, _help("first pause of a group whose servers ask for less; doubles up to 10m")] = "5s"
    in_doubt: Annotated[
        Literal["resend", "hold"], _help("what happens when acceptance cannot be known: resend once, or hold")
    ] = "resend"
    allow_unverified_domains: Annotated[bool, _help("true: a warning instead of a blocker")] = False
    dkim_ed25519: Annotated[
        bool, _help("a second signature with a short key (RFC 8463); each domain gets one more record")
    ] = False
    connect_timeout: Annotated[Duration, _help("to open a connection, and to encrypt it")] = "30s"
    command_timeout: Annotated[Duration, _help("for each reply before the message (RFC 5321, 4.5.3.2)")] = "300s"
    reply_timeout: Annotated[Duration, _help("wait for the reply after the final dot (RFC 5321, 4.5.3.2.6)")] = "600s"
    retry_after: Annotated[list[Annotated[float, Meta(ge=0)]], _help("seconds between attempts; the last repeats")] = (
        field(default_factory=lambda: [300, 600, 1200, 2400, 3600, 7200, 14400])
    )
    give_up: Annotated[Duration, _help("marketing mail is tried this long")] = "72h"
    give_up_transactional: Annotated[Duration, _help("single messages are tried this long")] = "24h"
    probe_after: Annotated[Duration, _help("pause before an unreachable transport is tried again")] = "30s"
    feedback_secret: Annotated[str, _help("signs /hooks/email; empty: that door is closed", secret=True)] = ""
    relay: Relay = Relay()
    direct: Direct = Direct()
    hooks: Hooks = Hooks()


class Inbound(Struct, frozen=True):
    """Mail that comes back to us."""

    listen: Annotated[str, _help('HOST:PORT of our own SMTP listener for bounces; "" = off; relays nothing')] = ""
    tls_certificate: Annotated[str, _help('file with the certificate and its chain; "" = no STARTTLS')] = ""
    tls_key: Annotated[str, _help('file with its key; "" = in the same file')] = ""


class Twilio(Struct, frozen=True):
    """SMS through Twilio's interface."""

    base_url: Annotated[str, _help("another server that speaks the same interface, for rehearsals")] = (
        "https://api.twilio.com"
    )
    account_sid: Annotated[str, _help("account SID")] = ""
    auth_token: Annotated[str, _help("auth token", secret=True)] = ""
    from_: Annotated[str, _help("sender number or name")] = field(default="", name="from")


class HttpSms(Struct, frozen=True):
    """SMS through a signed POST to a URL of yours."""

    url: Annotated[str, _help("where each SMS is posted")] = ""
    secret: Annotated[str, _help("signs what we post and what you post back", secret=True)] = ""


class Sms(Struct, frozen=True):
    """How SMS leave, to whom, and when."""

    transport: Annotated[Literal["capture", "twilio", "http"], _help("capture keeps them in the inbox")] = "capture"
    connections: Annotated[int, Meta(ge=1, le=200, description="requests to the provider at once")] = 16
    rate_per_second: Annotated[float, Meta(ge=0, description="0 = as fast as the provider takes them")] = 0
    sender_limits: Annotated[
        list[Limited], _help('of sender numbers or names: ["+15551234567 1/s 3600/h"], each part optional')
    ] = field(default_factory=list)
    parts_per_day: Annotated[int, Meta(ge=0, description="paid parts in a day of the account; 0 = unlimited")] = 0
    in_doubt: Annotated[Literal["resend", "hold"], _help("hold: a doubtful SMS waits for a person")] = "hold"
    request_timeout: Annotated[Duration, _help("for the provider's answer; then the SMS is in doubt")] = "30s"
    retry_after: Annotated[list[Annotated[float, Meta(ge=0)]], _help("seconds between attempts; the last repeats")] = (
        field(default_factory=lambda: [300, 600, 1200, 2400, 3600, 7200, 14400])
    )
    give_up: Annotated[Duration, _help("marketing SMS are tried this long")] = "72h"
    give_up_transactional: Annotated[Duration, _help("single SMS are tried this long")] = "24h"
    probe_after: Annotated[Duration, _help("pause before a provider that cannot be reached is tried again")] = "30s"
    countries: Annotated[
        list[Country], _help('two letters each: ["US", "CA"]; numbers of others get no SMS; [] = every country')
    ] = field(default_factory=list)
    country_senders: Annotated[
        list[CountrySender],
        _help('who sends to a country where it is not the usual sender: ["US +15551234567", "DE Acme"]'),
    ] = field(default_factory=list)
    new_numbers_per_hour: Annotated[
        int, Meta(ge=0, description="single SMS to unknown numbers that differ in the last 4 digits; 0 = unlimited")
    ] = 100
    opt_out_hint: Annotated[
        Literal["always", "monthly"], _help("the account's words: with each marketing SMS, or the first and monthly")
    ] = "always"
    stop_words: Annotated[list[str], _help("more words that opt out, beside STOP and its relatives")] = field(
        default_factory=lambda: ["ALTO", "BAJA", "PARAR", "STOPP"]
    )
    require_evidence: Annotated[
        bool, _help("true: marketing SMS only to whom it is on record how and to which words they agreed")
    ] = False
    plain_quotes: Annotated[bool, _help("true: makes curly quotes and dashes plain where that spares UCS-2")] = False
    twilio: Twilio = Twilio()
    http: HttpSms = HttpSms()


class Network(Struct, frozen=True):
    """What we may reach and whom we believe."""

    dns_servers: Annotated[list[Nameserver], _help('"host:port"; [] = those of the system')] = field(
        default_factory=list
    )
    allow_private_hosts: Annotated[list[str], _help("private hosts that webhooks and direct delivery may reach")] = (
        field(default_factory=list)
    )
    trusted_proxies: Annotated[list[str], _help("addresses or networks whose X-Forwarded-For is believed")] = field(
        default_factory=list
    )
    check_links: Annotated[bool, _help("true: links of a draft are asked whether they answer, before it is sent")] = (
        False
    )


class Webhooks(Struct, frozen=True):
    """How others are told of events."""

    connections: Annotated[int, Meta(ge=1, le=100, description="deliveries on their way at once")] = 16
    connections_each: Annotated[int, Meta(ge=1, le=100, description="to one webhook; 1 = one after the other")] = 4
    keep: Annotated[Duration, _help("how long the log of deliveries is kept")] = "30d"


class Tls(Struct, frozen=True):
    """Encryption of `listen` by a certificate of our own; behind a proxy that encrypts, none is needed."""

    certificate: Annotated[str, _help('file with certificate and chain, read again when it changes; "" = http')] = ""
    key: Annotated[str, _help('file with its key; "" = in the same file')] = ""


class Limits(Struct, frozen=True):
    """Bounds on requests."""

    requests_per_minute: Annotated[int, Meta(ge=0, description="per credential; 0 = off, burst = a tenth")] = 3000
    messages_per_minute: Annotated[int, Meta(ge=0, description="POST /messages and /events")] = 12000
    sends_per_minute: Annotated[int, Meta(ge=0, description="campaign send and test sends; burst = half")] = 120
    renders_per_minute: Annotated[int, Meta(ge=0, description="preview, count, simulate")] = 600
    login_attempts: Annotated[int, Meta(ge=1, description="in 15 minutes, per e-mail and per client")] = 10
    body_bytes: Annotated[int, Meta(ge=1024, description="largest JSON body")] = 2097152
    import_bytes: Annotated[int, Meta(ge=1024, description="largest import file")] = 209715200
    request_timeout: Annotated[
        Duration, _help("for the head of a request and for a pause in its body; a body has 1 s more for each 500 bytes")
    ] = "30s"
    max_lateness: Annotated[Duration, _help("a schedule missed by more than this pauses instead of sending")] = "6h"


class Storage(Struct, frozen=True):
    """When there is too little room to send."""

    least_free_mb: Annotated[
        int, Meta(ge=0, description="nothing is sent with less free on the data directory's disk")
    ] = 200
    least_free_percent: Annotated[
        float, Meta(ge=0, le=100, description="or with less than this part, if that is less")
    ] = 5
    reserve_mb: Annotated[int, Meta(ge=0, description="set aside to record what was in hand when the disk is full")] = (
        16
    )


class Events(Struct, frozen=True):
    """The log of what happened."""

    keep: Annotated[
        str,
        Meta(
            pattern=r"^(0|[3-9][0-9]|[1-9][0-9]{2,4})d$",
            description="older ones are deleted, and nothing asks further back; 30d at least, 0d = kept for good",
        ),
    ] = "0d"


class Backup(Struct, frozen=True):
    """Scheduled backups."""

    every: Annotated[Duration, _help("how often; 0s = never")] = "24h"
    keep: Annotated[int, Meta(ge=1, description="how many are kept")] = 7


class Log(Struct, frozen=True):
    """The log: on stderr, or in a file."""

    level: Annotated[Literal["debug", "info", "warning", "error"], _help("least level that is written")] = "info"
    format: Annotated[Literal["text", "json"], _help("text for people, json for machines")] = "text"
    file: Annotated[
        str,
        Meta(
            pattern=r"^(.*\.log)?$",
            description='NAME.log to write to, in the data directory unless it begins with /; "" = stderr',
        ),
    ] = ""
    file_mb: Annotated[float, Meta(ge=0.1, description="a file that is larger is put aside as FILE.1")] = 10
    files: Annotated[int, Meta(ge=1, le=1000, description="so many that were put aside are kept")] = 5


class Config(Struct, frozen=True):
    """The effective configuration of one process; never changed after start."""

    listen: Annotated[str, _help("HOST:PORT of the web interface and the API")] = "127.0.0.1:8080"
    base_url: Annotated[str, _help('address people reach us at, in every link; "" = http(s):// + listen')] = ""
    data_dir: Annotated[str, _help("database, key and backups")] = "./campanero-data"
    tls: Tls = Tls()
    email: Email = Email()
    inbound: Inbound = Inbound()
    sms: Sms = Sms()
    network: Network = Network()
    webhooks: Webhooks = Webhooks()
    limits: Limits = Limits()
    storage: Storage = Storage()
    events: Events = Events()
    backup: Backup = Backup()
    log: Log = Log()
