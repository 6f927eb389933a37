"""Every setting with its default: those of the operating contract, and further ones with the reason."""

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
journal_days = 35
[log]
level = "info"
format = "text"
"""
SETTINGS: dict[str, Any] = {
    f"{section}.{key}" if section else key: value
    for section, keys in tomllib.loads(_SETTINGS).items()
    for key, value in keys.items()
}

# Beyond the contract, by section: what each is for stands in the declaration, as its help
_OURS = """
copies: store recipients every full_every keep_days keep_weeks keep_months megabits_per_second prove_every
copies.s3: endpoint region access_key_id secret_access_key
copies.sftp: key_file private_key password host_key
email: messages_per_connection rate_per_hour sender_limits recipient_limits slow_down dkim_ed25519 connect_timeout
email: command_timeout request_timeout probe_after transports routes
email.relay: login
email.direct: group_connections warm_up mta_sts ipv6 probes
email.ses: region access_key_id secret_access_key configuration_set base_url
email.mailgun: domain region api_key base_url
email.postmark: server_token broadcast_stream transactional_stream base_url
email.sendgrid: api_key region base_url
email.resend: api_key base_url
email.brevo: api_key base_url
email.mailjet: api_key secret_key base_url
email.google: client_id client_secret refresh_token login_url base_url
email.microsoft: tenant client_id client_secret refresh_token login_url base_url
email.hooks: ses_topic postmark mailgun sendgrid brevo mailjet resend postal
inbound: tls_certificate tls_key
submission: listen listen_tls host tls_certificate tls_key recipients_per_hour
sms: connections rate_per_second sender_limits parts_per_day request_timeout retry_after give_up
sms: give_up_transactional probe_after countries country_senders new_numbers_per_hour opt_out_hint stop_words
sms: require_evidence plain_quotes
tls: certificate key
acme: directory email http_listen eab_key_id eab_hmac_key
webhooks: connections connections_each keep
network: check_links hook_max_age
limits: request_timeout agent_acts_per_hour
storage: least_free_mb least_free_percent reserve_mb
events: keep
updates: url
litestream: socket
lease: store seconds
log: file file_mb files
"""
OURS = frozenset(
    f"{section}.{key}"
    for section, keys in (line.split(": ") for line in _OURS.strip().splitlines())
    for key in keys.split()
)
