"""Signatures of SMS providers, written from their documentation; no code is shared with the appliance."""

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit, urlunsplit


class Post(NamedTuple):
    """A request as a provider sends it."""

    url: str
    headers: dict[str, str]
    body: bytes


def twilio_signature(token: str, url: str, fields: Mapping[str, str]) -> str:
    """Return Twilio's signature of a request: of the URL, then of each name and value, sorted by name."""
    content = url + "".join(name + fields[name] for name in sorted(fields))
    return base64.b64encode(hmac.new(token.encode(), content.encode(), hashlib.sha1).digest()).decode()


def twilio_form(token: str, url: str, fields: Mapping[str, str], *, signed: str | None = None) -> Post:
    """Return a form request of Twilio; `signed` is the URL that is signed, if it is another one."""
    headers = {
        "Content-Type": "application/x-www-form-urlencoded; charset=UTF-8", "User-Agent": "TwilioProxy/1.1",
        "X-Twilio-Signature": twilio_signature(token, signed or url, fields),
    }  # fmt: skip
    return Post(url, headers, urlencode(fields).encode())


def twilio_json(token: str, url: str, fields: Mapping[str, Any]) -> Post:
    """Return a JSON request of Twilio: the URL contains the digest of the body, and only the URL is signed."""
    body = json.dumps(fields).encode()
    parts = urlsplit(url)
    more = f"bodySHA256={hashlib.sha256(body).hexdigest()}"
    url = urlunsplit(parts._replace(query=f"{parts.query}&{more}" if parts.query else more))
    headers = {"Content-Type": "application/json", "X-Twilio-Signature": twilio_signature(token, url, {})}
    return Post(url, headers, body)


def generic(secret: str, url: str, payload: Mapping[str, Any], at: float, name: str | None = None) -> Post:
    """Return a signed JSON request as standardwebhooks.com specifies it."""
    name, sent, body = name or str(uuid.uuid4()), str(int(at)), json.dumps(payload).encode()
    return Post(url, {"Content-Type": "application/json", **generic_headers(secret, name, sent, body)}, body)


def generic_headers(secret: str, name: str, sent: str, body: bytes) -> dict[str, str]:
    """Return the id, timestamp and signature headers of standardwebhooks.com."""
    key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    signature = hmac.new(key, f"{name}.{sent}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": name, "webhook-timestamp": sent,
        "webhook-signature": "v1," + base64.b64encode(signature).decode(),
    }  # fmt: skip
