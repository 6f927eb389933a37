"""What was agreed with those who build on this: the settings and the endpoints, as data to hold the sources against."""

import tomllib
from typing import Any

_SETTINGS = """
[""]
listen = "127.0.0.1:8080"
base_url = ""
data_dir = "./campanero-data"
[email]
transport = "capture"
connections = 4
rate_per_second = 0
in_doubt = "resend"
allow_unverified_domains = false
reply_timeout = "600s"
retry_after = [300, 600, 1200, 2400, 3600, 7200, 14400]
give_up = "72h"
give_up_transactional = "24h"
feedback_secret = ""
["email.relay"]
host = ""
port = 587
username = ""
password = ""
tls = "starttls"
["email.direct"]
port = 25
helo = ""
[inbound]
listen = ""
[sms]
transport = "capture"
in_doubt = "hold"
["sms.twilio"]
base_url = "https://api.twilio.com"
account_sid = ""
auth_token = ""
from = ""
["sms.http"]
url = ""
secret = ""
[network]
dns_servers = []
allow_private_hosts = []
trusted_proxies = []
[limits]
requests_per_minute = 3000
messages_per_minute = 12000
sends_per_minute = 120
renders_per_minute = 600
login_attempts = 10
body_bytes = 2097152
import_bytes = 209715200
max_lateness = "6h"
[backup]
every = "24h"
keep = 7
[log]
level = "info"
format = "text"
"""
SETTINGS: dict[str, dict[str, Any]] = tomllib.loads(_SETTINGS)

# Method, path under /v1/my, statuses of success
ENDPOINTS: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("GET", "/messages", (200,)),
    ("POST", "/messages", (200, 201)),
    ("GET", "/messages/{id}", (200,)),
    ("GET", "/campaigns", (200,)),
    ("POST", "/campaigns", (201,)),
    ("GET", "/campaigns/{id}", (200,)),
    ("PATCH", "/campaigns/{id}", (200,)),
    ("DELETE", "/campaigns/{id}", (200,)),
    ("POST", "/campaigns/{id}/send", (200,)),
    ("POST", "/campaigns/{id}/pause", (200,)),
    ("POST", "/campaigns/{id}/resume", (200,)),
    ("POST", "/campaigns/{id}/cancel", (200,)),
    ("GET", "/campaigns/{id}/preflight", (200,)),
    ("GET", "/contacts", (200,)),
    ("POST", "/contacts", (200, 201)),
    ("GET", "/contacts/search", (200,)),
    ("GET", "/contacts/{id}", (200,)),
    ("PATCH", "/contacts/{id}", (200,)),
    ("DELETE", "/contacts/{id}", (200,)),
    ("GET", "/lists", (200,)),
    ("POST", "/lists", (201,)),
    ("GET", "/lists/{id}", (200,)),
    ("PATCH", "/lists/{id}", (200,)),
    ("DELETE", "/lists/{id}", (200,)),
    ("GET", "/forms", (200,)),
    ("POST", "/forms", (201,)),
    ("GET", "/forms/{id}", (200,)),
    ("PATCH", "/forms/{id}", (200,)),
    ("DELETE", "/forms/{id}", (200,)),
    ("GET", "/templates", (200,)),
    ("POST", "/templates", (201,)),
    ("GET", "/templates/{id}", (200,)),
    ("PATCH", "/templates/{id}", (200,)),
    ("DELETE", "/templates/{id}", (200,)),
    ("POST", "/uploads", (201,)),
    ("GET", "/brand", (200,)),
    ("PUT", "/brand", (200,)),
    ("GET", "/domains", (200,)),
    ("POST", "/domains", (201,)),
    ("GET", "/domains/{id}", (200,)),
    ("DELETE", "/domains/{id}", (200,)),
    ("POST", "/domains/{id}/verify", (200,)),
    ("GET", "/account", (200,)),
    ("GET", "/delivery/status", (200,)),
    ("PATCH", "/account", (200,)),
    ("GET", "/events", (200,)),
    ("POST", "/events", (200, 201)),
    ("GET", "/events/{id}", (200,)),
)
