"""Classification of rejections by SMTP code, enhanced code and text, and the suppression rule of each class."""

import pytest

from appliance.sending.delivery import bounce_classes
from tests.kit.timeouts import extend_timeout

REPLIES = [
    # No such recipient (docs/decisions.md#9), by code and by text
    (550, "5.1.1", "The email account that you tried to reach does not exist", "hard"),
    (550, "5.1.2", "bad destination system", "hard"),
    (553, "5.1.3", "bad syntax", "hard"),
    (550, "5.1.6", "moved", "hard"),
    (556, "5.1.10", "null MX", "hard"),
    (550, None, "No such user here", "hard"),
    (550, None, "sorry, no mailbox here by that name (#5.1.1 - chkuser)", "hard"),
    (554, None, "delivery error: dd This user doesn't have a yahoo.com account (x@example.com) [0]", "hard"),
    (550, None, "Unrouteable address", "hard"),
    (550, None, "User x (x@example.org) not listed in Domino Directory", "hard"),
    (550, "5.1.0", "Address rejected. User unknown", "hard"),
    (None, None, "x@example.org: Empfänger unbekannt", "hard"),
    # Disabled mailbox or missing domain; suppressed at the second rejection
    (550, "5.2.1", "The email account that you tried to reach is inactive", "disabled"),
    (552, "5.2.2", "The email account that you tried to reach is inactive", "disabled"),
    (554, None, "30 Sorry, your message cannot be delivered. This mailbox is disabled (554.30).", "disabled"),
    (550, "5.4.1", "Recipient address rejected: Access denied. AS(201806281)", "disabled"),
    (550, "5.5.0", "Requested action not taken: mailbox unavailable", "disabled"),
    (None, "5.4.4", "Host or domain name not found. Name service error", "nowhere"),
    # Full
    (552, "5.2.2", "The email account that you tried to reach is over quota", "full"),
    (452, "4.2.2", "The recipient's inbox is out of storage space", "full"),
    (552, None, "Requested mail action aborted: exceeded storage allocation", "full"),
    # Temporary
    (450, "4.1.1", "User unknown in virtual mailbox table", "temporary"),
    (450, "4.2.1", "The user you are trying to contact is receiving mail at a rate that prevents it", "temporary"),
    (451, "4.3.0", "Temporary server error", "temporary"),
    (421, None, "Service not available", "temporary"),
    (450, None, "Greylisted, try again", "temporary"),
    (450, "5.1.1", "unverified address", "temporary"),
    (None, "4.4.7", "Message expired", "expired"),
    (None, "5.4.300", "Message expired -> 451 4.4.0", "expired"),
    # The message
    (552, "5.3.4", "Message size exceeds fixed limit", "size"),
    (552, None, "message size exceeds the maximum", "size"),
    (550, "5.2.3", "too big for this mailbox", "size"),
    (550, "5.7.1", "Our system has detected that this message is likely unsolicited mail", "content"),
    (554, "5.7.9", "Message not accepted for policy reasons. See [PH01]", "content"),
    (552, "5.7.0", "This message was blocked because its content presents a potential security issue", "content"),
    (550, "5.6.0", "lone CR or LF", "content"),
    # Ours
    (550, "5.7.26", "This mail has been blocked because the sender is unauthenticated", "authentication"),
    (421, "4.7.26", "unauthenticated", "authentication"),
    (550, "5.7.25", "The IP address does not have a PTR record", "authentication"),
    (550, "5.7.515", "Access denied, sending domain does not meet the required authentication level", "authentication"),
    (550, "5.7.1", "Unauthenticated email is not accepted due to the domain's DMARC policy", "authentication"),
    (550, "5.7.23", "SPF validation failed", "authentication"),
    (421, "4.7.28", "unusual rate of unsolicited mail", "reputation"),
    (550, "5.7.28", "unusual rate", "reputation"),
    (421, "4.7.0", "[TSS04] Messages temporarily deferred due to unexpected volume or user complaints", "reputation"),
    (553, "5.7.1", "[TS03] All messages from 192.0.2.1 will be permanently deferred", "reputation"),
    (550, "5.7.1", "very low reputation of the sending domain", "reputation"),
    (421, None, "RP-001 The mail server IP connecting has exceeded the rate limit", "reputation"),
    (550, "5.7.1", "Unfortunately, part of their network is on our block list (S3140)", "reputation"),
    (550, "5.7.1", "Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org", "blocklist"),
    (550, "5.1.1", "rejected, 192.0.2.1 is listed at bl.spamcop.net", "blocklist"),
    (550, "5.7.606", "Access denied, banned sending IP [192.0.2.1]", "blocklist"),
    (554, "5.4.6", "too many hops", "setup"),
    (550, None, "Sender address rejected: Domain not found", "setup"),
    (550, "5.7.64", "TenantAttribution; Relay Access Denied", "setup"),
    (501, "5.5.4", "Invalid argument", "setup"),
    (550, "5.0.0", "no", "refused"),
    (None, None, "", "refused"),
]


@pytest.mark.parametrize(("smtp", "enhanced", "text", "name"), REPLIES)
def test_classify_a_rejection(smtp: int | None, enhanced: str | None, text: str, name: str) -> None:
    """Each reply of the table gets its class."""
    assert bounce_classes.classify(smtp, enhanced, text).name == name


def test_each_class_has_its_suppression_rule() -> None:
    """Every class is under the expected suppression rule and has a meaning; all but one have a help text."""
    by_rule = {rule: [cls.name for cls in bounce_classes.ALL_CLASSES if cls.suppression_rule == rule] for rule in
              ("at_once", "second", "third", "fifth", "opted_out", "never")}  # fmt: skip
    assert by_rule == {
        "at_once": ["hard"],
        "second": ["disabled", "nowhere"],
        "third": ["unreachable"],
        "opted_out": ["opted_out"],
        "fifth": ["full", "temporary", "expired"],
        "never": [
            "size",
            "content",
            "authentication",
            "reputation",
            "blocklist",
            "setup",
            "refused",
            "filtered",
            "unregistered",
            "country",
        ],
    }
    assert all(cls.meaning and (cls.help or cls is bounce_classes.REFUSED) for cls in bounce_classes.ALL_CLASSES)


@pytest.mark.parametrize(
    ("enhanced", "text", "word"),
    [("5.7.27", "", "SPF"), ("5.7.30", "", "_domainkey"), ("5.7.25", "", "PTR"), ("5.7.26", "", "_dmarc"),
     (None, "550 5.7.515 denied", "_dmarc"), ("5.7.1", "no valid DKIM signature", "_domainkey"),
     ("5.7.1", "unauthenticated", "Settings > Domains")],
)  # fmt: skip
def test_authentication_failures_name_the_dns_record(enhanced: str | None, text: str, word: str) -> None:
    """The help for an authentication failure names the DNS record to fix, or the Settings > Domains."""
    assert word in bounce_classes.authentication_help(enhanced, text)


@pytest.mark.parametrize("piece", ["mailbox ", "user a", "sender ", "quota", "5.1.1.", "address x ", "\n", "host "])
def test_classifying_long_replies_is_fast(piece: str) -> None:
    """Replies of 100,000 repetitions are classified quickly."""
    import time

    started_at = time.perf_counter()
    for _ in range(5):
        bounce_classes.classify(None, None, piece * 100_000)
    assert time.perf_counter() - started_at < extend_timeout(0.5)
