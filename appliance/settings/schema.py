"""Declare all settings: their names, types, defaults and help lines.

`config.py` loads the values. `config.example.toml`, `campanero check` and the settings pages are generated from these
declarations.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from appliance.settings.copies import Copies, Lease, Litestream
from appliance.settings.logs import Log, Updates


def _help(text: str, **extra: Any) -> Meta:
    return Meta(description=text, extra=extra or None)


Duration = Annotated[str, Meta(pattern=r"^[0-9]+(s|m|h|d)$")]
LimitText = Annotated[
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
# The URL of a provider's API, without a query.
ApiUrl = Annotated[
    str,
    Meta(
        pattern=r"^(https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?)?\Z",
        description='URL of the API, also of another server with the same API; "" = that of the provider',
    ),
]
LoginUrl = Annotated[
    str,
    Meta(
        pattern=r"^(https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?)?\Z",
        description='URL of the authorization server, as of a national cloud; "" = the usual one',
    ),
]
# The limit of rates that are set on a page, because numbers of more than 28 digits cannot be shown.
_MAX_RATE = 1_000_000_000


class Relay(Struct, frozen=True):
    """The SMTP server that takes all mail if `email.transport` is `relay`."""

    host: Annotated[str, _help("name or address of the SMTP server", required=True)] = ""
    port: Annotated[int, Meta(ge=1, le=65535, description="587 with starttls, 465 with tls")] = 587
    username: Annotated[str, _help('user name for the SMTP server; "" = no login')] = ""
    password: Annotated[str, _help("password; prefer the environment to a file", secret=True)] = ""
    tls: Annotated[
        Literal["none", "starttls", "tls"],
        _help("encryption: none, starttls or tls; only none allows a login in clear text"),
    ] = "starttls"
    login: Annotated[
        Literal["password", "google", "microsoft"],
        _help("password, or OAuth 2.0 with the client of [email.google] or [email.microsoft]"),
    ] = "password"


class Direct(Struct, frozen=True):
    """Delivery to the recipients' own servers, if `email.transport` is `direct`."""

    port: Annotated[int, Meta(ge=1, le=65535, description="port of the recipients' servers")] = 25
    helo: Annotated[str, _help('host name in HELO and EHLO; "" = host of base_url')] = ""
    group_connections: Annotated[
        int, Meta(ge=1, le=20, description="maximum connections to one provider; starts with fewer")
    ] = 20
    warm_up: Annotated[bool, _help("a new sending domain starts with few messages a day, more after each good day")] = (
        True
    )
    mta_sts: Annotated[bool, _help("enforce the MTA-STS policies of recipients' domains (RFC 8461)")] = True
    ipv6: Annotated[bool, _help("use IPv6 too; only if its addresses have PTR records")] = False
    probes: Annotated[
        list[str], _help("domains whose servers are probed to check that port 25 is open; [] = no check")
    ] = field(default_factory=lambda: ["gmail.com", "outlook.com", "yahoo.com"])


# The transports that send over the HTTP API of a provider (`sending/transports`). A key consists of ASCII characters
# without spaces, because it becomes a header. `\Z` and not `$` ends the patterns, as `$` allows a line break there.


def _key(text: str, secret: bool = True) -> Meta:
    return Meta(pattern=r"^[!-~]*\Z", description=text, extra={"secret": secret, "required": True})


def _token() -> Meta:
    text = "refresh token of the consent; set by Settings, Sending"
    return Meta(pattern=r"^[!-~]*\Z", description=text, extra={"secret": True})


class Ses(Struct, frozen=True):
    """Amazon SES, if `email.transport` is `ses`."""

    region: Annotated[
        str,
        Meta(
            pattern=r"^([a-z]{2}(-[a-z]{1,12}){1,3}-[0-9])?\Z",
            description="AWS region of the verified domain, such as eu-west-1",
            extra={"required": True},
        ),
    ] = ""
    access_key_id: Annotated[str, _key("access key ID of an IAM user that may send", secret=False)] = ""
    secret_access_key: Annotated[str, _key("secret access key")] = ""
    configuration_set: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9_-]{0,64}\Z", description='configuration set; "" = the default one')
    ] = ""
    base_url: ApiUrl = ""


class Mailgun(Struct, frozen=True):
    """Mailgun, if `email.transport` is `mailgun`."""

    domain: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9.-]*\Z", description="domain as Mailgun lists it", extra={"required": True}),
    ] = ""
    region: Annotated[Literal["us", "eu"], _help("region of the domain")] = "us"
    api_key: Annotated[str, _key("API key, or sending key of the domain")] = ""
    base_url: ApiUrl = ""


class Postmark(Struct, frozen=True):
    """Postmark, if `email.transport` is `postmark`."""

    server_token: Annotated[str, _key("server API token")] = ""
    broadcast_stream: Annotated[str, _help("ID of the message stream for marketing email", required=True)] = "broadcast"
    transactional_stream: Annotated[str, _help("ID of the message stream for all other email", required=True)] = (
        "outbound"
    )
    base_url: ApiUrl = ""


class SendGrid(Struct, frozen=True):
    """SendGrid, if `email.transport` is `sendgrid`."""

    api_key: Annotated[str, _key("API key with the permission Mail Send")] = ""
    region: Annotated[Literal["global", "eu"], _help("region of the account")] = "global"
    base_url: ApiUrl = ""


class Resend(Struct, frozen=True):
    """Resend, if `email.transport` is `resend`."""

    api_key: Annotated[str, _key("API key")] = ""
    base_url: ApiUrl = ""


class Brevo(Struct, frozen=True):
    """Brevo, if `email.transport` is `brevo`."""

    api_key: Annotated[str, _key("API key, not an SMTP key")] = ""
    base_url: ApiUrl = ""


class Mailjet(Struct, frozen=True):
    """Mailjet, if `email.transport` is `mailjet`."""

    api_key: Annotated[str, _key("API key", secret=False)] = ""
    secret_key: Annotated[str, _key("secret key")] = ""
    base_url: ApiUrl = ""


# The clients of OAuth 2.0, also for `email.relay.login`. A refresh token is a setting, so that it is sealed and bound
# to its installation like a password; the consent on *Settings, Sending* sets it.


class Google(Struct, frozen=True):
    """Gmail and Google Workspace, if `email.transport` or `email.relay.login` is `google`."""

    client_id: Annotated[str, _key("OAuth client ID of an app of yours", secret=False)] = ""
    client_secret: Annotated[str, _key("secret of the OAuth client")] = ""
    refresh_token: Annotated[str, _token()] = ""
    login_url: LoginUrl = ""
    base_url: ApiUrl = ""


class Microsoft(Struct, frozen=True):
    """Microsoft 365, if `email.transport` or `email.relay.login` is `microsoft`."""

    tenant: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9.-]{1,253}\Z",
            description="tenant ID or domain; organizations = that of the mailbox, for an app of several tenants",
            extra={"required": True},
        ),
    ] = "organizations"
    client_id: Annotated[str, _key("application (client) ID of an app of yours", secret=False)] = ""
    client_secret: Annotated[
        str,
        Meta(
            pattern=r"^[!-~]*\Z", description='client secret; "" = the app is a public client', extra={"secret": True}
        ),
    ] = ""
    refresh_token: Annotated[str, _token()] = ""
    login_url: LoginUrl = ""
    base_url: ApiUrl = ""


class Hooks(Struct, frozen=True):
    """Webhooks by which email services report bounces and complaints; a path returns 404 while its setting is empty."""

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
    mailgun: Annotated[str, _help("/hooks/mailgun: HTTP webhook signing key", secret=True)] = ""
    sendgrid: Annotated[str, _help("/hooks/sendgrid: verification key of the signed event webhook")] = ""
    brevo: Annotated[str, _help("/hooks/brevo: the password in the webhook URL", secret=True)] = ""
    mailjet: Annotated[str, _help("/hooks/mailjet: the password in the webhook URL", secret=True)] = ""
    resend: Annotated[str, _help("/hooks/resend: signing secret of the webhook", secret=True)] = ""
    postal: Annotated[str, _help("/hooks/postal: the server's public key: its jwks.json, or PEM")] = ""


class NamedTransport(Struct, frozen=True, forbid_unknown_fields=True):
    """A transport of email beside the one of `email.transport` (`settings/transports.py`).

    Its options are the settings of the section of its kind, such as `host` and `password` of `email.relay`.
    """

    key: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,39}\Z", description="id in rules and in the ledger; stays")]
    name: Annotated[str, Meta(min_length=1, max_length=60, description="name that people read")]
    kind: Annotated[str, Meta(description="relay, direct or the name of an HTTP API")]
    options: Annotated[dict[str, str | int], Meta(description="settings of its kind")] = field(default_factory=dict)
    connections: Annotated[int, Meta(ge=1, le=100, description="concurrent transactions or requests")] = 4
    rate_per_second: Annotated[float, Meta(ge=0, le=_MAX_RATE, description="messages per second; 0 = unlimited")] = 0
    rate_per_hour: Annotated[int, Meta(ge=0, le=_MAX_RATE, description="messages per hour; 0 = unlimited")] = 0
    warm_up: Annotated[bool, Meta(description="few messages a day at first, more after each good day")] = False


class Route(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that says which transports send the email that meets its conditions; an empty condition is always met."""

    shares: Annotated[
        dict[str, Annotated[int, Meta(ge=0, le=100)]],
        Meta(description="shares by transport; one with 0 only takes over while the others cannot send"),
    ]
    domains: Annotated[list[str], Meta(description="sending domains")] = field(default_factory=list)
    traffic: Annotated[Literal["all", "marketing", "transactional"], Meta(description="class of the email")] = "all"
    recipients: Annotated[list[str], Meta(description="mailbox providers or domains of the recipients")] = field(
        default_factory=list
    )


class Email(Struct, frozen=True):
    """Sending of email."""

    transport: Annotated[
        Literal[
            "capture",
            "relay",
            "direct",
            "ses",
            "mailgun",
            "postmark",
            "sendgrid",
            "resend",
            "brevo",
            "mailjet",
            "google",
            "microsoft",
        ],
        _help("capture: keep mail in the built-in inbox; relay: one SMTP server; direct: no relay; else: an HTTP API"),
    ] = "capture"
    connections: Annotated[int, Meta(ge=1, le=100, description="concurrent SMTP transactions or HTTP requests")] = 4
    messages_per_connection: Annotated[int, Meta(ge=1, description="messages before a new connection is opened")] = 100
    rate_per_second: Annotated[float, Meta(ge=0, le=_MAX_RATE, description="messages per second; 0 = unlimited")] = 0
    rate_per_hour: Annotated[
        int, Meta(ge=0, le=_MAX_RATE, description="messages in any 60 minutes, across restarts; 0 = unlimited")
    ] = 0
    sender_limits: Annotated[
        list[LimitText], _help('limits of sending domains: ["example.org 5/s 200/h 2 connections"], each part optional')
    ] = field(default_factory=list)
    recipient_limits: Annotated[
        list[LimitText], _help('limits of mailbox providers or recipient domains: ["google 10/s 4 connections"]')
    ] = field(default_factory=list)
    slow_down: Annotated[Duration, _help("first pause for a provider that asks to slow down; doubles up to 10m")] = "5s"
    in_doubt: Annotated[
        Literal["resend", "hold"], _help("messages with unknown outcome: resend once, or hold for a person")
    ] = "resend"
    allow_unverified_domains: Annotated[
        bool, _help("true: an unverified sending domain is a warning, not a blocker")
    ] = False
    dkim_ed25519: Annotated[
        bool, _help("add a second DKIM signature (Ed25519, RFC 8463); each domain needs one more record")
    ] = False
    connect_timeout: Annotated[Duration, _help("timeout for opening a connection, and for encrypting it")] = "30s"
    command_timeout: Annotated[Duration, _help("timeout for each reply before the message (RFC 5321, 4.5.3.2)")] = (
        "300s"
    )
    reply_timeout: Annotated[Duration, _help("timeout for the reply after the final dot (RFC 5321, 4.5.3.2.6)")] = (
        "600s"
    )
    request_timeout: Annotated[
        Duration, _help("timeout for the response of a provider's HTTP API; then the outcome is unknown")
    ] = "30s"
    retry_after: Annotated[list[Annotated[float, Meta(ge=0)]], _help("seconds between attempts; the last repeats")] = (
        field(default_factory=lambda: [300, 600, 1200, 2400, 3600, 7200, 14400])
    )
    give_up: Annotated[Duration, _help("how long marketing email is retried")] = "72h"
    give_up_transactional: Annotated[Duration, _help("how long transactional email is retried")] = "24h"
    probe_after: Annotated[Duration, _help("pause before an unreachable transport is tried again")] = "30s"
    feedback_secret: Annotated[
        str, _help('signs requests to /hooks/email; "" = that path returns 404', secret=True)
    ] = ""
    transports: Annotated[
        list[NamedTransport],
        _help("further transports: [[email.transports]] with key, name, kind, options; see the guide", secret=True),
    ] = field(default_factory=list)
    routes: Annotated[
        list[Route],
        _help("rules of [[email.routes]], first match wins: shares = { default = 80, backup = 20 }, conditions"),
    ] = field(default_factory=list)
    relay: Relay = Relay()
    direct: Direct = Direct()
    ses: Ses = Ses()
    mailgun: Mailgun = Mailgun()
    postmark: Postmark = Postmark()
    sendgrid: SendGrid = SendGrid()
    resend: Resend = Resend()
    brevo: Brevo = Brevo()
    mailjet: Mailjet = Mailjet()
    google: Google = Google()
    microsoft: Microsoft = Microsoft()
    hooks: Hooks = Hooks()


class Inbound(Struct, frozen=True):
    """Incoming mail: bounces, spam complaints and unsubscribe requests by email."""

    listen: Annotated[str, _help('HOST:PORT of the built-in SMTP listener for bounces; relays nothing; "" = off')] = ""
    tls_certificate: Annotated[
        str, _help('file with the certificate and its chain; "auto" = from the CA of [acme]; "" = no STARTTLS')
    ] = ""
    tls_key: Annotated[str, _help('file with its key; "" = in the same file')] = ""


class Submission(Struct, frozen=True):
    """SMTP submission: programs send through this service with the name of an API key and the key as password."""

    listen: Annotated[str, _help('HOST:PORT of the SMTP server with STARTTLS, usually port 587; "" = off')] = ""
    listen_tls: Annotated[str, _help('HOST:PORT of the SMTP server with TLS, usually port 465; "" = off')] = ""
    host: Annotated[str, _help('name that programs connect to, for the settings page; "" = host of base_url')] = ""
    tls_certificate: Annotated[
        str, _help('file with the certificate and its chain; "" = that of tls, else that of inbound')
    ] = ""
    tls_key: Annotated[str, _help('file with its key; "" = in the same file')] = ""
    recipients_per_hour: Annotated[
        int, Meta(ge=0, le=_MAX_RATE, description="recipients per API key in any 60 minutes; 0 = unlimited")
    ] = 1000


class Twilio(Struct, frozen=True):
    """SMS through Twilio's API."""

    base_url: Annotated[str, _help("URL of the API; another server with the same API serves for tests")] = (
        "https://api.twilio.com"
    )
    account_sid: Annotated[str, _help("account SID")] = ""
    auth_token: Annotated[str, _help("auth token", secret=True)] = ""
    from_: Annotated[str, _help("sender number or name")] = field(default="", name="from")


class HttpSms(Struct, frozen=True):
    """SMS through a signed POST to your own URL."""

    url: Annotated[str, _help("URL that each SMS is posted to")] = ""
    secret: Annotated[str, _help("signs the requests in both directions", secret=True)] = ""


class Sms(Struct, frozen=True):
    """Sending of SMS."""

    transport: Annotated[Literal["capture", "twilio", "http"], _help("capture: keep all SMS in the built-in inbox")] = (
        "capture"
    )
    connections: Annotated[int, Meta(ge=1, le=200, description="concurrent requests to the provider")] = 16
    rate_per_second: Annotated[float, Meta(ge=0, le=_MAX_RATE, description="SMS per second; 0 = unlimited")] = 0
    sender_limits: Annotated[
        list[LimitText], _help('limits of sender numbers or names: ["+15551234567 1/s 3600/h"], each part optional')
    ] = field(default_factory=list)
    parts_per_day: Annotated[
        int, Meta(ge=0, le=_MAX_RATE, description="SMS parts per day and account; 0 = unlimited")
    ] = 0
    in_doubt: Annotated[
        Literal["resend", "hold"], _help("SMS with unknown outcome: resend once, or hold for a person")
    ] = "hold"
    request_timeout: Annotated[Duration, _help("timeout for the provider's response; then the outcome is unknown")] = (
        "30s"
    )
    retry_after: Annotated[list[Annotated[float, Meta(ge=0)]], _help("seconds between attempts; the last repeats")] = (
        field(default_factory=lambda: [300, 600, 1200, 2400, 3600, 7200, 14400])
    )
    give_up: Annotated[Duration, _help("how long marketing SMS are retried")] = "72h"
    give_up_transactional: Annotated[Duration, _help("how long transactional SMS are retried")] = "24h"
    probe_after: Annotated[Duration, _help("pause before an unreachable provider is tried again")] = "30s"
    countries: Annotated[
        list[Country], _help('countries that get SMS, as two-letter codes: ["US", "CA"]; [] = every country')
    ] = field(default_factory=list)
    country_senders: Annotated[
        list[CountrySender],
        _help('senders for single countries instead of the default: ["US +15551234567", "DE Acme"]'),
    ] = field(default_factory=list)
    new_numbers_per_hour: Annotated[
        int,
        Meta(
            ge=0,
            le=_MAX_RATE,
            description="transactional SMS to unknown numbers that differ only in the last 4 digits; 0 = unlimited",
        ),
    ] = 100
    opt_out_hint: Annotated[
        Literal["always", "monthly"], _help("opt-out text: in every marketing SMS, or in the first and then monthly")
    ] = "always"
    stop_words: Annotated[list[str], _help("opt-out keywords in addition to STOP and its variants")] = field(
        default_factory=lambda: ["ALTO", "BAJA", "PARAR", "STOPP"]
    )
    require_evidence: Annotated[
        bool, _help("true: marketing SMS require a consent record: how the contact agreed, and to which text")
    ] = False
    plain_quotes: Annotated[bool, _help("true: replace curly quotes and dashes where that avoids UCS-2")] = False
    twilio: Twilio = Twilio()
    http: HttpSms = HttpSms()


class Network(Struct, frozen=True):
    """DNS servers, access to private hosts, trusted proxies, the link check, and the age of signed requests."""

    dns_servers: Annotated[list[Nameserver], _help('DNS servers as "host:port"; [] = those of the system')] = field(
        default_factory=list
    )
    allow_private_hosts: Annotated[list[str], _help("private hosts that webhooks and direct delivery may reach")] = (
        field(default_factory=list)
    )
    trusted_proxies: Annotated[list[str], _help("addresses or networks whose X-Forwarded-For is trusted")] = field(
        default_factory=list
    )
    check_links: Annotated[bool, _help("true: preflight requests the links of a draft to find broken ones")] = False
    hook_max_age: Annotated[
        Duration,
        _help("maximum age of a signed request to /hooks; a longer one lets a service resend events after an outage"),
    ] = "5m"


class Webhooks(Struct, frozen=True):
    """Delivery of events to webhooks."""

    connections: Annotated[int, Meta(ge=1, le=100, description="concurrent deliveries")] = 16
    connections_each: Annotated[
        int, Meta(ge=1, le=100, description="concurrent deliveries to one webhook; 1 = in sequence")
    ] = 4
    keep: Annotated[Duration, _help("how long the delivery log is kept")] = "30d"


class Tls(Struct, frozen=True):
    """TLS for `listen` with a certificate of this service; not needed behind a proxy that terminates TLS."""

    certificate: Annotated[
        str,
        _help('file with certificate and chain, read again when changed; "auto" = from the CA of [acme]; "" = http'),
    ] = ""
    key: Annotated[str, _help('file with its key; "" = in the same file')] = ""


class Acme(Struct, frozen=True):
    """The certificate authority (RFC 8555) that issues the certificates of the settings that are `auto`."""

    directory: Annotated[
        str,
        Meta(
            pattern=r"^https://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?\Z",
            description='URL of the CA\'s directory; "auto" accepts its terms of service',
        ),
    ] = "https://acme-v02.api.letsencrypt.org/directory"
    email: Annotated[str, _help('address that the CA may write to; "" = none')] = ""
    http_listen: Annotated[
        str, _help('HOST:PORT that answers the CA over http and redirects to https; "" = only the https port answers')
    ] = "0.0.0.0:80"
    eab_key_id: Annotated[str, _help("key ID, if the CA requires an account with it (external account binding)")] = ""
    eab_hmac_key: Annotated[str, _help("HMAC key that belongs to the key ID, in base64url", secret=True)] = ""


class Limits(Struct, frozen=True):
    """Limits of requests, and of the lateness of scheduled campaigns."""

    requests_per_minute: Annotated[int, Meta(ge=0, description="per credential; burst = a tenth; 0 = unlimited")] = 3000
    messages_per_minute: Annotated[int, Meta(ge=0, description="POST /messages and /events")] = 12000
    sends_per_minute: Annotated[int, Meta(ge=0, description="campaign send and test sends; burst = half")] = 120
    renders_per_minute: Annotated[int, Meta(ge=0, description="preview, count, simulate")] = 600
    agent_acts_per_hour: Annotated[int, Meta(ge=1, description="writes of one agent; more get 429")] = 120
    login_attempts: Annotated[int, Meta(ge=1, description="in 15 minutes, per email address and per client")] = 10
    body_bytes: Annotated[int, Meta(ge=1024, description="largest JSON body")] = 2097152
    import_bytes: Annotated[int, Meta(ge=1024, description="largest import file")] = 209715200
    request_timeout: Annotated[
        Duration,
        _help("timeout for the head of a request and for a pause in its body; a body gets 1 s more per 500 bytes"),
    ] = "30s"
    max_lateness: Annotated[
        Duration, _help("a scheduled campaign that is later than this is paused instead of sent")
    ] = "6h"


class Storage(Struct, frozen=True):
    """The free disk space below which sending stops, and the size of the reserve file."""

    least_free_mb: Annotated[
        int, Meta(ge=0, description="sending stops with less free space on the disk of data_dir")
    ] = 200
    least_free_percent: Annotated[
        float, Meta(ge=0, le=100, description="or with less than this percentage, if that is less")
    ] = 5
    reserve_mb: Annotated[
        int, Meta(ge=0, description="disk space reserved for recording outcomes when the disk is full")
    ] = 16


class Events(Struct, frozen=True):
    """The event log."""

    keep: Annotated[
        str,
        Meta(
            pattern=r"^(0|[3-9][0-9]|[1-9][0-9]{2,4})d$",
            description="how long events are kept; filters reach no further back; at least 30d, 0d = forever",
        ),
    ] = "0d"


class Backup(Struct, frozen=True):
    """Scheduled backups."""

    every: Annotated[Duration, _help("interval; 0s = never")] = "24h"
    keep: Annotated[
        int,
        Meta(ge=1, description="how many automatic backups are kept, one per interval; older ones are deleted"),
    ] = 7
    journal_days: Annotated[
        int,
        Meta(ge=1, le=3650, description="days for which the journal names sent messages; older backups repeat them"),
    ] = 35


class Config(Struct, frozen=True):
    """The immutable configuration of the service; each change on a settings page creates a new instance."""

    listen: Annotated[str, _help("HOST:PORT of the web interface and the API")] = "127.0.0.1:8080"
    base_url: Annotated[str, _help('public URL of the service, used in every link; "" = http(s):// + listen')] = ""
    data_dir: Annotated[str, _help("directory of the database, the key and the backups")] = "./campanero-data"
    tls: Tls = Tls()
    acme: Acme = Acme()
    email: Email = Email()
    inbound: Inbound = Inbound()
    submission: Submission = Submission()
    sms: Sms = Sms()
    network: Network = Network()
    webhooks: Webhooks = Webhooks()
    limits: Limits = Limits()
    storage: Storage = Storage()
    events: Events = Events()
    backup: Backup = Backup()
    copies: Copies = Copies()
    updates: Updates = Updates()
    litestream: Litestream = Litestream()
    lease: Lease = Lease()
    log: Log = Log()
