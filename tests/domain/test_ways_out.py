"""The ways out of marketing in each message: by web always, by mail where somebody listens (RFC 8058, RFC 2369)."""

import re

import pytest
from msgspec.structs import replace

from appliance.core import clock, crypto
from appliance.sending.messages import links
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.sending.messages.prepare import MessagePreparer
from appliance.settings import config
from appliance.settings.schema import Inbound
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import SendingDomain
from appliance.tracking import unsubscribes
from tests.domain.home import Home

MX = {"record_type": "MX", "name": "bounce.example.org", "valid": "valid"}


def sent(home: Home, inbound: str, *records: dict[str, str]) -> tuple[Claim, str]:
    """Send a campaign on a relay and answer its row, and its List-Unsubscribe as it stands on the wire."""
    home.configure(email__transport="relay", email__relay__host="127.0.0.1", email__allow_unverified_domains=True)
    config.set_current(replace(config.current(), inbound=Inbound(listen=inbound)))
    now = clock.now_ms()
    transactions.write(lambda: SendingDomain.create(
        account=home.account_id, name="example.org", status="verified", ownership_token="x", dns_records=list(records),
        created_at=now, updated_at=now,
    ))  # fmt: skip
    transactions.write(lambda: home_address(home))
    member = home.contact("ana@example.net")
    campaign = home.send(home.campaign(home.list_of(member.id).id, from_email="news@example.org"))
    claim = Claim._make(rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ?", (campaign.id,))[0])
    wire = MessagePreparer().prepare(claim).envelope.content
    found = re.search(rb"\r\nList-Unsubscribe: ((?:.|\r\n )+?)\r\n(?! )", wire)
    assert found is not None
    return claim, found[1].decode("ascii")


def home_address(home: Home) -> None:
    """Give the brand a postal address, without which nothing leaves."""
    from appliance.content import brand as brands

    brands.update(home.account_id, brands.BrandWrite(physical_address="1 Mill Lane"))


@pytest.mark.parametrize(
    ("inbound", "records"), [("", [MX]), ("127.0.0.1:2525", []), ("127.0.0.1:2525", [MX | {"valid": "invalid"}])]
)
def test_there_is_no_address_that_nobody_listens_at(inbound: str, records: list[dict[str, str]], home: Home) -> None:
    """Without a listener of ours, or a record that leads to it, the web is the one way out."""
    claim, header = sent(home, inbound, *records)
    assert header == f"<{links.build_unsubscribe_url(claim.id)}>"


def test_with_a_listener_a_mail_unsubscribes_too(home: Home) -> None:
    """The web address stands first and the mail address behind it, on a line of its own; what comes there opts out."""
    claim, header = sent(home, "127.0.0.1:2525", MX)
    web, address = header.split(",\r\n ")
    assert web == f"<{links.build_unsubscribe_url(claim.id)}>" and "=?" not in header
    found = re.fullmatch(r"<mailto:unsubscribe\+([0-9a-f]{44})@bounce\.example\.org>", address)
    assert found is not None and len(f"unsubscribe+{found[1]}") <= 64, "a local part has 64 characters at most"
    assert transactions.write(unsubscribes.opt_out, found[1].upper(), "mailto")
    assert home.channel("ana@example.net").opted_out_by == "recipient"
    assert home.acts("ana@example.net")[-1][:3] == ("opt_out", "recipient", "mailto")


def test_a_token_of_one_way_is_none_of_another(home: Home) -> None:
    """Each purpose has its own MAC; a changed character is nobody's, and nothing changes (T24)."""
    claim, _ = sent(home, "127.0.0.1:2525", MX)
    by_mail = crypto.sign_hex_token(links.LEAVE, claim.id, 16)
    others = [crypto.sign_token(kind, claim.id) for kind in (links.VIEW, links.PREFERENCES, links.CONFIRM)]
    others += [
        crypto.sign_hex_token(links.BOUNCE, claim.id),
        crypto.sign_hex_token(links.BOUNCE, claim.id, 16),
        by_mail,
    ]
    for token in others:
        assert transactions.write(unsubscribes.opt_out, token, "link") is False, token
    changed = [by_mail[:n] + ("0" if by_mail[n] != "0" else "1") + by_mail[n + 1 :] for n in range(len(by_mail))]
    for token in [*changed, crypto.sign_token(links.UNSUBSCRIBE, claim.id), "", "é" * 44, by_mail + "00"]:
        assert transactions.write(unsubscribes.opt_out, token, "mailto") is False, token
    assert home.channel("ana@example.net").subscribed
