"""Bounces and reports as real servers write them, one file each in samples/bounces, and their meaning.

The files contain placeholders for the recipient, return path, Message-ID, unsubscribe link and address.
"""

import base64
import re
from pathlib import Path
from typing import NamedTuple

SAMPLES = Path(__file__).parent.parent / "samples" / "bounces"
_ENCODED = re.compile(r"%BASE64%\n(.*?)%/BASE64%\n", re.DOTALL)


class Placeholders(NamedTuple):
    """The values for the placeholders of a sample, in the order of `sample`."""

    recipient: str
    return_path: str
    message_id: str
    unsubscribe: str
    leave: str = ""


# The class of each sample; `delivered` and `complaint` are not bounces, and `nothing` must have no effect
EXPECTED_CLASSES = {
    "arf_forged_token": "nothing",
    "arf_fraud": "complaint",
    "arf_headers_only": "complaint",
    "arf_message_id_alone": "nothing",
    "arf_microsoft_jmrp": "complaint",
    "arf_not_spam": "nothing",
    "arf_recipient_named": "unverified",
    "arf_rfc5965": "complaint",
    "arf_unsubscribe_link_alone": "nothing",
    "arf_virus": "nothing",
    "arf_without_token": "nothing",
    "arf_yahoo_redacted": "complaint",
    "broken_blocks_joined": "hard",
    "broken_no_action": "hard",
    "broken_no_closing_boundary": "hard",
    "broken_wrong_boundary": "hard",
    "challenge_response": "nothing",
    "courier_unknown": "hard",
    "domino_text": "hard",
    "encoded_status_part": "hard",
    "exchange_2010_quota": "full",
    "exchange_old_text": "hard",
    "exchange_online_access_denied": "disabled",
    "exchange_online_dmarc": "authentication",
    "exchange_online_expired": "expired",
    "exchange_online_not_found": "hard",
    "exim_report_unroutable": "hard",
    "exim_text_blocklist": "blocklist",
    "exim_text_quota": "full",
    "exim_text_retry_timeout": "expired",
    "exim_text_unrouteable": "hard",
    "exim_text_warning": "nothing",
    "french_text": "hard",
    "global_delivery_status": "hard",
    "gmail_delay": "nothing",
    "gmail_inactive": "disabled",
    "gmail_not_found": "hard",
    "gmail_over_quota": "full",
    "gmail_quota_inactive": "disabled",
    "gmail_reputation": "reputation",
    "gmail_unauthenticated": "authentication",
    "gmx_text_german": "hard",
    "greylisting_expired": "temporary",
    "hmailserver_text": "hard",
    "html_only_bounce": "hard",
    "human_answer": "nothing",
    "ironport_james": "hard",
    "japanese_text": "hard",
    "left_the_company": "nothing",
    "mdaemon_temporary": "temporary",
    "names_nobody": "nothing",
    "other_recipient_only": "nothing",
    "outlook_consumer": "disabled",
    "postfix_alias_behind": "hard",
    "postfix_delayed": "nothing",
    "postfix_delayed_with_final_code": "nothing",
    "postfix_expanded": "nothing",
    "postfix_expired": "temporary",
    "postfix_host_not_found": "nowhere",
    "postfix_loop": "setup",
    "postfix_multiple": "hard",
    "postfix_no_enhanced_code": "hard",
    "postfix_null_mx": "hard",
    "postfix_over_quota": "full",
    "postfix_relayed": "nothing",
    "postfix_size": "size",
    "postfix_spamhaus": "blocklist",
    "postfix_spf": "authentication",
    "postfix_success": "delivered",
    "postfix_user_unknown": "hard",
    "qmail_no_host": "hard",
    "qmail_no_mailbox": "hard",
    "qmail_over_quota": "full",
    "qmail_queue_too_long": "temporary",
    "qmail_remote_550": "hard",
    "read_receipt": "nothing",
    "sendmail_ancient": "hard",
    "sendmail_status_made_up": "content",
    "sendmail_user_unknown": "hard",
    "sendmail_warning": "nothing",
    "ses_suppressed": "expired",
    "ses_too_large": "size",
    "ses_unknown": "hard",
    "spanish_text_full": "full",
    "vacation_german": "nothing",
    "vacation_gmail": "nothing",
    "yahoo_disabled_text": "disabled",
    "yahoo_no_account": "hard",
    "yahoo_ph01": "content",
    "yahoo_ts03": "reputation",
    "zimbra_quota": "full",
}


def sample(name: str, placeholders: Placeholders) -> bytes:
    """Return the bytes of a sample as a bounce of one message."""
    text = (SAMPLES / f"{name}.eml").read_text(encoding="utf-8")
    for mark, value in zip(("%RCPT%", "%VERP%", "%MSGID%", "%UNSUB%", "%LEAVE%"), placeholders, strict=True):
        text = text.replace(mark, value)
    text = _ENCODED.sub(lambda match: base64.encodebytes(match[1].encode()).decode(), text)
    return text.replace("\n", "\r\n").encode()


def hostile_emails() -> dict[str, bytes]:
    """Return emails that are made to crash or slow down a parser, by name."""
    report = b'Content-Type: multipart/report; report-type=delivery-status; boundary="x"\r\n\r\n'
    deep = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (number, number) for number in range(100)
    )
    fields = b"--x\r\nContent-Type: message/delivery-status\r\n\r\n"
    return {
        "deep": deep, "letters nested": b"Content-Type: message/rfc822\r\n\r\n" * 5_000,
        "many parts": report + b"--x\r\n\r\n" * 10_000, "headers": b"a:b\r\n" * 200_000,
        "one header": b"Subject: " + b"x\r\n " * 200_000,
        "parameters": b"Content-Type: text/plain; " + b'a="b;' * 150_000,
        "spread parameters": b"Content-Type:\r\n text/plain; " + b'a="b;\r\n ' * 90_000,
        "blocks": report + fields + b"a:b\r\n\r\n" * 100_000,
        "recipients": report + fields + b"Final-Recipient: rfc822;a@b.example\r\nAction: failed\r\n\r\n" * 15_000,
        "one line": b"\r\n" + b"x" * 1_000_000, "rubbish": bytes(range(256)) * 4_000, "nothing": b"",
        "addresses": b"From: MAILER-DAEMON\r\nSubject: failure notice\r\n\r\n" + b"a@" * 400_000,
        "charset": b"Content-Type: text/plain; charset=punycode\r\n\r\n" + b"-a" * 400_000,
        "bad charset": b"From: postmaster@x\r\nSubject: =?nope?q?undeliverable?=\r\n"
        b"Content-Type: text/plain; charset=\"\xff\xfe\"\r\n\r\n550 user unknown a@b.example",
        "bad code": report + fields + b"Final-Recipient: rfc822; a@b.example\r\nAction: failed\r\n"
        b"Status: 5.99999999.1\r\nDiagnostic-Code: smtp; 999 5.1 \xff\x00\r\n",
        "too large": report + b"x" * 1024 * 1024,
    }  # fmt: skip
