"""The messages that the SMS provider for tests accepted, and their JSON form in Twilio's API."""

import email.utils
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import urlencode


@dataclass
class Sms:
    """An accepted message."""

    sid: str
    provider: str  # twilio, http
    to: str
    sender: str
    body: str
    callback: str
    at: float
    status: str = "queued"
    code: int | None = None
    account: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def new(cls, provider: str, to: str, sender: str, body: str, callback: str, fields: dict[str, Any]) -> Self:
        """Return a message with a new id."""
        sid = ("SM" if provider == "twilio" else "") + secrets.token_hex(16)
        return cls(sid, provider, to, sender, body, callback, time.time(), fields=fields)


def error_json(code: int, status: int, text: str) -> dict[str, Any]:
    """Return an error in the JSON form of Twilio."""
    return {"code": code, "message": text, "more_info": f"https://www.twilio.com/docs/errors/{code}", "status": status}


def message_json(sms: Sms) -> dict[str, Any]:
    """Return a message in the JSON form of Twilio."""
    when = email.utils.formatdate(int(sms.at)).replace("-0000", "+0000")
    service = sms.sender if sms.sender.startswith("MG") and len(sms.sender) == 34 else None
    uri = f"/2010-04-01/Accounts/{sms.account}/Messages/{sms.sid}"
    return {
        "account_sid": sms.account, "api_version": "2010-04-01", "body": sms.body, "date_created": when,
        "date_sent": None if sms.status in ("queued", "accepted") else when, "date_updated": when,
        "direction": "outbound-api", "error_code": sms.code, "error_message": None,
        "from": None if service else sms.sender, "messaging_service_sid": service, "num_media": "0",
        "num_segments": "1", "price": None, "price_unit": "USD", "sid": sms.sid, "status": sms.status,
        "subresource_uris": {"media": f"{uri}/Media.json"}, "to": sms.to, "uri": f"{uri}.json",
    }  # fmt: skip


def page_json(messages: list[Sms], path: str, query: dict[str, str]) -> dict[str, Any]:
    """Return a page of messages, newest first, that match `To`, `From` and `DateSent`."""
    matching = [sms for sms in reversed(messages) if _matches(sms, query)]
    size, number = min(int(query.get("PageSize", 50)), 1000), int(query.get("Page", 0))
    page = matching[number * size : (number + 1) * size]
    more = (number + 1) * size < len(matching)
    last = page[-1].sid if page else ""
    after = {**query, "Page": str(number + 1), "PageSize": str(size), "PageToken": f"PA{last}"}
    return {
        "messages": [message_json(sms) for sms in page], "page": number, "page_size": size, "start": number * size,
        "end": number * size + len(page) - 1, "uri": f"{path}?{urlencode(query)}",
        "first_page_uri": f"{path}?{urlencode({**query, 'Page': '0'})}", "previous_page_uri": None,
        "next_page_uri": f"{path}?{urlencode(after)}" if more else None,
    }  # fmt: skip


def _matches(sms: Sms, query: dict[str, str]) -> bool:
    at = datetime.fromtimestamp(int(sms.at), UTC)
    day, moment = at.strftime("%Y-%m-%d"), at.strftime("%Y-%m-%dT%H:%M:%SZ")

    def comparable(text: str) -> str:
        return moment if "T" in text else day

    service = sms.sender.startswith("MG")
    return (
        query.get("To", sms.to) == sms.to
        and ("From" not in query or (query["From"] == sms.sender and not service))
        and query.get("DateSent", day) == day
        and comparable(query.get("DateSent>", "")) >= query.get("DateSent>", "")
        and ("DateSent<" not in query or comparable(query["DateSent<"]) <= query["DateSent<"])
    )
