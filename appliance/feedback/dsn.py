"""Reads reports about deliveries: RFC 3464 by its fields, older and stranger ones by their words (D28).

What a report says of one recipient becomes a `Report`. That something is late, was passed on or was put on a list is no
verdict and is left out; so are answers of people and their machines (RFC 3834).
"""

import re
from email.message import Message
from typing import Literal, NamedTuple

from appliance import addresses
from appliance.delivery import classes
from appliance.feedback import mime, old

_STATUS = ("message/delivery-status", "message/global-delivery-status")
_SMTP = re.compile(r"(?<![\d.])([245]\d\d)(?![\d.])")
_ENHANCED = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.]*\d)")
_XTEXT = re.compile(r"\+([0-9A-F]{2})")
_MAX_RECIPIENTS = 50
_MAX_CHARACTERS = 1_000


class Report(NamedTuple):
    """What became of a message for one recipient, who may be named in several ways."""

    kind: Literal["bounced", "soft_bounced", "delivered"]
    recipients: tuple[str, ...]
    smtp: int | None
    enhanced: str | None
    text: str


def read(mail: Message) -> list[Report]:
    """Return what a mail reports, recipient by recipient; nothing where it is no report."""
    part = mime.first(mail, *_STATUS)
    if part is not None:
        return _of_fields(mime.blocks(mime.text(part)), mail)
    if mail.get_content_type() == "multipart/report" and str(mail.get_param("report-type")).lower() in (
        "disposition-notification", "feedback-report",
    ):  # fmt: skip
        return []
    words = old.own_words(mail)
    broken = _of_fields(mime.blocks(words), mail) if "final-recipient:" in words.lower() else []
    return broken or _of_words(mail, words)


def _of_fields(blocks: list[dict[str, str]], mail: Message) -> list[Report]:
    found = []
    for block in blocks[: _MAX_RECIPIENTS + 1]:
        if not ("action" in block or "final-recipient" in block or "original-recipient" in block):
            continue
        action = block.get("action", "").split("(")[0].strip().lower()
        status = next(iter(_ENHANCED.findall(block.get("status", ""))), None)
        if action == "delivered":
            found.append(Report("delivered", _named(block), None, status, ""))
        elif action in ("failed", "failure") or (not action and (status or "").startswith("5")):
            found.append(_failed(block, status, mail))
    return found


def _failed(block: dict[str, str], status: str | None, mail: Message) -> Report:
    said = block.get("diagnostic-code", "")
    kind, semicolon, rest = said.partition(";")
    said = " ".join((rest if semicolon and " " not in kind.strip() else said).split())
    smtp = _SMTP.search(said)
    own = next((code for code in _ENHANCED.findall(said) if not code.endswith(".0.0")), None)
    # The words of the last server are nearer to what happened than the status that somebody made of them
    enhanced = own or (status if status is not None and not status.endswith(".0.0") else None)
    if not said or (smtp is None and enhanced is None):
        said = " ".join(f"{said} {old.own_words(mail)[:_MAX_CHARACTERS]}".split())
    return _report(_named(block), int(smtp[1]) if smtp else None, enhanced or status, said)


def _report(recipients: tuple[str, ...], smtp: int | None, enhanced: str | None, text: str) -> Report:
    found = classes.classify(smtp, None if enhanced is None or enhanced.endswith(".0.0") else enhanced, text)
    kind: Literal["bounced", "soft_bounced"] = "bounced" if found is classes.HARD else "soft_bounced"
    return Report(kind, recipients, smtp, enhanced, text[:_MAX_CHARACTERS])


def _named(block: dict[str, str]) -> tuple[str, ...]:
    """Return the ways a recipient is named: as it was given to the last server, and as we gave it to the first."""
    found: dict[str, None] = {}
    for name in ("final-recipient", "original-recipient", "x-actual-recipient"):
        _, semicolon, value = block.get(name, "").partition(";")
        value = value if semicolon else block.get(name, "")
        for spelling in (value, _XTEXT.sub(lambda code: chr(int(code[1], 16)), value)):
            found |= dict.fromkeys(mime.ADDRESS.findall(addresses.unquoted(spelling))[:2])
    return tuple(found)


def _of_words(mail: Message, words: str) -> list[Report]:
    """Read a bounce that has no fields; who is named in it is all that makes it believed."""
    if not old.is_bounce(mail, words):
        return []
    failed = mime.header(mail, "X-Failed-Recipients")
    named = tuple(dict.fromkeys(mime.ADDRESS.findall(addresses.unquoted(failed or words))))[:_MAX_RECIPIENTS]
    said = " ".join(words.split())
    smtp = _SMTP.search(said)
    enhanced = next(iter(_ENHANCED.findall(said)), None)
    report = _report(named, int(smtp[1]) if smtp else None, enhanced, said)
    found = classes.classify(report.smtp, report.enhanced, said)
    return [] if found is classes.REFUSED else [report]
