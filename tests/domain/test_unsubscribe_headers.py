"""Unsubscribe headers of marketing mail: a URL, and a mailto address if mail is received (RFC 8058, RFC 2369)."""

import re

import pytest
from msgspec.structs import replace

from appliance.core import clock, crypto
from appliance.sending.messages import links
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
from appliance.settings import config
from appliance.settings.schema import Inbound
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import SendingDomain
from appliance.tracking import unsubscribes
from tests.domain.home import Home

MX = {"record_type": "MX", "name": "bounce.example.org", "valid": "valid"}


def send_campaign(home: Home, inbound: str, *records: dict[str, str]) -> tuple[LedgerRow, str]:
    """Send a campaign through a relay, and return its ledger row and its List-Unsubscribe header."""
    home.configure(email__transport="relay", email__relay__host="127.0.0.1", email__allow_unverified_domains=True)
    config.set_current(replace(config.current(), inbound=Inbound(listen=inbound)))
    now = clock.now_ms()
    transactions.write(lambda: SendingDomain.create(
        account=home.account_id, name="example.org", status="verified", ownership_token="x", dns_records=list(records),
        created_at=now, updated_at=now,
    ))  # fmt: skip
    transactions.write(lambda: set_postal_address(home))
    member = home.contact("ana@example.net")
    campaign = home.send(home.campaign(home.list_of(member.id).id, from_email="news@example.org"))
    row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ?", (campaign.id,))[0])
    wire = MessagePreparer().prepare(row).envelope.content
    match = re.search(rb"\r\nList-Unsubscribe: ((?:.|\r\n )+?)\r\n(?! )", wire)
    assert match is not None
    return row, match[1].decode("ascii")


def set_postal_address(home: Home) -> None:
    """Set the brand's postal address, which a send requires."""
    from appliance.content import brand as brands

    brands.update(home.account_id, brands.BrandWrite(physical_address="1 Mill Lane"))


@pytest.mark.parametrize(
    ("inbound", "records"), [("", [MX]), ("127.0.0.1:2525", []), ("127.0.0.1:2525", [MX | {"valid": "invalid"}])]
)
def test_no_mailto_without_a_listener(inbound: str, records: list[dict[str, str]], home: Home) -> None:
    """Without the built-in SMTP server or a valid MX record the header has only the URL."""
    row, header = send_campaign(home, inbound, *records)
    assert header == f"<{links.build_unsubscribe_url(config.base_url(config.current()), row.id)}>"


def test_mailto_with_a_listener(home: Home) -> None:
    """The header has the URL first and the mailto address on the next line; a mail to it unsubscribes."""
    row, header = send_campaign(home, "127.0.0.1:2525", MX)
    url, address = header.split(",\r\n ")
    assert url == f"<{links.build_unsubscribe_url(config.base_url(config.current()), row.id)}>" and "=?" not in header
    match = re.fullmatch(r"<mailto:unsubscribe\+([0-9a-f]{44})@bounce\.example\.org>", address)
    assert match is not None and len(f"unsubscribe+{match[1]}") <= 64, "a local part has 64 characters at most"
    assert transactions.write(unsubscribes.opt_out, match[1].upper(), "mailto")
    assert home.channel("ana@example.net").opted_out_by == "recipient"
    assert home.consent_rows("ana@example.net")[-1][:3] == ("opt_out", "recipient", "mailto")


def test_unsubscribe_tokens_are_bound_to_their_purpose(home: Home) -> None:
    """Tokens of other purposes and changed tokens do not unsubscribe anyone (T24)."""
    row, _ = send_campaign(home, "127.0.0.1:2525", MX)
    mailto_token = crypto.sign_hex_token(links.LEAVE, row.id, 16)
    other_tokens = [crypto.sign_token(kind, row.id) for kind in (links.VIEW, links.PREFERENCES, links.CONFIRM)]
    other_tokens += [
        crypto.sign_hex_token(links.BOUNCE, row.id),
        crypto.sign_hex_token(links.BOUNCE, row.id, 16),
        mailto_token,
    ]
    for token in other_tokens:
        assert transactions.write(unsubscribes.opt_out, token, "link") is False, token
    changed_tokens = [
        mailto_token[:index] + ("0" if mailto_token[index] != "0" else "1") + mailto_token[index + 1 :]
        for index in range(len(mailto_token))
    ]
    for token in [*changed_tokens, crypto.sign_token(links.UNSUBSCRIBE, row.id), "", "é" * 44, mailto_token + "00"]:
        assert transactions.write(unsubscribes.opt_out, token, "mailto") is False, token
    assert home.channel("ana@example.net").subscribed
