"""The door for programs that speak the API of Twilio SendGrid (docs.sendgrid.com/api-reference/mail-send): sending.

Each of the `personalizations` is a message of its own. They are queued as a whole or not at all.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from sanic import HTTPResponse, Request

from appliance.api import auth, http
from appliance.api.doors import door as base
from appliance.api.doors.door import Batch, Door, DoorMessage, DoorRoute, Field, Fields, FileKeys, Ignored, Refused
from appliance.api.endpoints import ApiRequest
from appliance.api.http import DescribedError
from appliance.core import clock
from appliance.core.errors import Faults
from appliance.sending.messages.foreign_content import ForeignContent, PlaceholderNames
from appliance.sending.messages.message_request import MAX_RECIPIENTS

PATH = "/compat/sendgrid"
_KEYS = FileKeys("attachments", "content")
# The messages of one request. Each has a copy of the content, and all copies together have a limit.
MAX_PERSONALIZATIONS = 500
MAX_CATEGORIES, MAX_CONTENTS, MAX_SETTINGS = 10, 10, 20
MIN_NAME_CHARACTERS, MAX_NAME_CHARACTERS = 2, 100


def _format_mailbox(value: Any, path: str, faults: Faults) -> str | None:
    """Return the text `Name <address>` of {"email", "name"}, or None after adding an error."""
    if not isinstance(value, dict) or not isinstance(value.get("email"), str):
        faults.add(path, "must have an email")
        return None
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return str(value["email"])
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}" <{value["email"]}>'


def _read_addresses(value: Any, path: str, faults: Faults) -> list[str] | None:
    """Return the addresses of a list of {"email", "name"}, or None after adding an error.

    Names are left out, because headers show addresses only.
    """
    if not isinstance(value, list):
        faults.add(path, "must be a list")
        return None
    if len(value) > MAX_RECIPIENTS:
        faults.add(path, f"is too long (maximum is {MAX_RECIPIENTS} recipients)")
        return None
    addresses = []
    for index, item in enumerate(value):
        if isinstance(item, dict) and isinstance(item.get("email"), str):
            addresses.append(item["email"])
        else:
            faults.add(f"{path}[{index}]", "must have an email")
    return addresses


def _read_reply_to(value: Any, path: str, faults: Faults) -> str | None:
    addresses = _read_addresses(value if isinstance(value, list) else [value], path, faults)
    if addresses is not None and len(addresses) > 1:
        faults.add(path, "must have one address")
    return addresses[0] if addresses else None


def _read_content(value: Any, path: str, faults: Faults) -> dict[str, str] | None:
    """Return {"text", "html"} of a list of {"type", "value"}, or None after adding an error."""
    if not isinstance(value, list):
        faults.add(path, "must be a list")
        return None
    if len(value) > MAX_CONTENTS:
        faults.add(path, f"is too long (maximum is {MAX_CONTENTS} entries)")
        return None
    texts: dict[str, str] = {}
    for index, part in enumerate(value):
        kind, text = (part.get("type"), part.get("value")) if isinstance(part, dict) else (None, None)
        name = {"text/plain": "text", "text/html": "html"}.get(str(kind).partition(";")[0].strip().lower())
        if name is None or not isinstance(text, str):
            faults.add(f"{path}[{index}]", "must have the type text/plain or text/html and a value")
        elif name in texts:
            faults.add(f"{path}[{index}]", "has a type that was given already")
        else:
            texts[name] = text
    return texts


def _read_files(value: Any, path: str, faults: Faults) -> Any:
    files = _FILES(value, path, faults)
    for file in files or ():
        if file.pop("disposition", None) != "inline":
            # Without this, a picture with an id would be shown in the text.
            file.pop("content_id", None)
    return files


_FILES = base.read_files({
    "filename": "filename", "content": "content", "type": "content_type", "content_id": "content_id",
    "disposition": "disposition",
})  # fmt: skip


def _read_time(value: Any, path: str, faults: Faults) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**11:
        faults.add(path, "must be a Unix time in seconds")
        return None
    return clock.iso(value * 1000) if value * 1000 > clock.now_ms() else None


def _read_categories(value: Any, path: str, faults: Faults) -> list[str] | None:
    names = value if isinstance(value, list) else [value]
    if len(names) > MAX_CATEGORIES or not all(isinstance(name, str) for name in names):
        faults.add(path, f"must be at most {MAX_CATEGORIES} texts")
        return None
    return names


def _read_substitutions(value: Any, path: str, faults: Faults) -> dict[str, str] | None:
    """Return the values of placeholders by placeholder, or None after adding an error.

    A placeholder is any text, which its value replaces.
    """
    texts = base.read_texts(value, path, faults)
    if any(not MIN_NAME_CHARACTERS <= len(name) <= MAX_NAME_CHARACTERS for name in texts or ()):
        faults.add(path, f"must have names of {MIN_NAME_CHARACTERS} to {MAX_NAME_CHARACTERS} characters")
        return None
    return texts


def _read_settings(known: Mapping[str, str | None]) -> Any:
    """Return a reader of settings, which returns the names of the enabled ones, each with True.

    `known` maps the name of each known setting to None, or to the error if the setting is enabled.
    """

    def read(value: Any, path: str, faults: Faults) -> dict[str, bool] | None:
        if not isinstance(value, dict):
            faults.add(path, "must be an object")
            return None
        if len(value) > MAX_SETTINGS:
            faults.add(path, f"is too long (maximum is {MAX_SETTINGS} entries)")
            return None
        enabled: dict[str, bool] = {}
        for name, setting in value.items():
            if not isinstance(setting, dict) or not setting.get("enable"):
                continue
            if name not in known:
                faults.add(f"{path}.{name}", "is not a known setting")
            elif reason := known[name]:
                faults.add(f"{path}.{name}", reason)
            else:
                enabled[name] = True
        return enabled

    return read


_TEMPLATE = Refused("is not supported: templates are those of this service, by POST /v1/my/messages")
_BYPASS = "is not supported: suppressed addresses get no mail"
_FOOTER = "is not supported: put it into the content"
FIELDS: Fields = {
    "from": Field("from", _format_mailbox), "reply_to": Field("reply_to", _read_reply_to),
    "reply_to_list": Field("reply_to", _read_reply_to), "subject": Field("subject", base.keep),
    "content": Field("content", _read_content), "attachments": Field("attachments", _read_files),
    "headers": Field("headers", base.read_headers), "categories": Field("tag_names", _read_categories),
    "custom_args": Field("variables", base.read_texts), "send_at": Field("send_at", _read_time),
    "mail_settings": Field("mail_settings", _read_settings({
        "sandbox_mode": None, "footer": _FOOTER, "bypass_list_management": _BYPASS, "bypass_spam_management": _BYPASS,
        "bypass_bounce_management": _BYPASS, "bypass_unsubscribe_management": None, "spam_check": None,
        "bcc": "is not supported: use bcc of personalizations",
    })),
    "tracking_settings": Field("tracking_settings", _read_settings({
        "open_tracking": None, "click_tracking": None, "subscription_tracking": _FOOTER,
        "ganalytics": "is not supported: put the parameters into the links",
    })),
    "ip_pool_name": Ignored("mail leaves as the transport says"),
    "template_id": _TEMPLATE, "sections": _TEMPLATE, "batch_id": Refused("is not supported: cancel single messages"),
    "asm": Refused("is not supported: send marketing as a campaign"), "personalizations": Ignored("read apart"),
}  # fmt: skip
PERSONAL_FIELDS: Fields = {
    "to": Field("to", _read_addresses), "cc": Field("cc", _read_addresses), "bcc": Field("bcc", _read_addresses),
    "from": Field("from", _format_mailbox), "subject": Field("subject", base.keep),
    "headers": Field("headers", base.read_headers), "substitutions": Field("substitutions", _read_substitutions),
    "custom_args": Field("variables", base.read_texts), "send_at": Field("send_at", _read_time),
    "dynamic_template_data": _TEMPLATE,
}  # fmt: skip
_NAMES = {"other_to": "to", "html": "content", "text": "content", "body": "content", "tags": "custom_args"}


def _read(request: ApiRequest, raw: Mapping[str, Any]) -> tuple[list[DoorMessage], bool]:
    """Return (messages of a request, whether nothing is to be sent because of the sandbox mode).

    The errors of fields that all messages share are in `faults` of the first message.
    """
    faults = Faults()
    common, ignored = base.read_fields(raw, FIELDS, faults)
    request.ignored_keys.extend(name for name in ignored if name != "personalizations")
    settings, tracking = common.pop("mail_settings", {}), common.pop("tracking_settings", {})
    for name in ("bypass_unsubscribe_management", "spam_check"):
        request.ignored_keys.extend([f"mail_settings.{name}"] if name in settings else [])
    request.ignored_keys.extend(["tracking_settings.click_tracking"] if "click_tracking" in tracking else [])
    common |= common.pop("content", {})
    common["tracks_opens"] = "open_tracking" in tracking
    personal = raw.get("personalizations")
    if not isinstance(personal, list) or not personal:
        faults.add("personalizations", "can't be blank")
        personal = []
    copied = sum(len(common.get(name, "")) for name in ("html", "text")) * len(personal)
    if len(personal) > MAX_PERSONALIZATIONS or copied > base.MAX_COPIED_CHARACTERS:
        faults.add("personalizations", f"is too long (maximum is {MAX_PERSONALIZATIONS} entries)")
        personal = personal[:1]
    key = faults.collect(http.get_idempotency_key, request.http)
    shared: dict[frozenset[str], PlaceholderNames] = {}
    messages = [_read_one(common, item, index, key, shared) for index, item in enumerate(personal)]
    if not messages:
        messages = [DoorMessage(common, Faults(), _NAMES, "")]
    messages[0].faults.merge(faults.fields)
    return messages, "sandbox_mode" in settings


def _read_one(
    common: Mapping[str, Any], item: Any, index: int, key: str | None,
    shared: dict[frozenset[str], PlaceholderNames],
) -> DoorMessage:  # fmt: skip
    """Return the message of a personalization.

    `shared` has the placeholders of earlier ones by their set of names, so that equal sets are compiled once.
    """
    faults, path = Faults(), f"personalizations[{index}]"
    if not isinstance(item, dict):
        faults.add(path, "must be an object")
        item = {}
    own, _ = base.read_fields(item, PERSONAL_FIELDS, faults, f"{path}.")
    ours = {
        **common, **own,
        "headers": {**common.get("headers", {}), **own.get("headers", {})},
        "variables": {**common.get("variables", {}), **own.get("variables", {})},
    }  # fmt: skip
    substitutions: dict[str, str] = ours.pop("substitutions", {})
    base.split_recipients(ours, ours.pop("to", None), faults, f"{path}.to")
    base.set_tags(ours)
    content = None
    if substitutions:
        placeholder = shared.setdefault(frozenset(substitutions), PlaceholderNames(substitutions))
        content = ForeignContent(placeholder, substitutions)
    names = {**_NAMES, **dict.fromkeys(("to", "other_to"), f"{path}.to"), "cc": f"{path}.cc", "bcc": f"{path}.bcc"}
    return DoorMessage(ours, faults, names, f"{PATH}/v3/mail/send/{index}", key, content, substitutions)


async def send_mail(request: ApiRequest) -> HTTPResponse:
    """Send one message for each of the personalizations: `POST /v3/mail/send`."""
    raw = await base.read_json_object(request, _KEYS)
    messages, is_dry_run = await asyncio.to_thread(_read, request, raw)
    base.charge(request, len(messages))
    batch = Batch(messages, f"{PATH}/v3/mail/send", [raw])
    ids = await base.queue_all(request, batch, lambda index: "", is_dry_run)
    if is_dry_run:
        return HTTPResponse(b"", 200)
    return HTTPResponse(b"", 202, {"X-Message-Id": base.write_id(ids[0])})


def _write_error(error: DescribedError) -> HTTPResponse:
    status = 400 if error.status == 422 else error.status
    faults: Mapping[str, list[str]] = error.extra.get("validation_errors") or {}
    errors: list[dict[str, Any]] = [
        {"message": text if field == "base" else f"{field} {text}", "field": None if field == "base" else field,
         "help": None}
        for field, texts in faults.items()
        for text in texts
    ]  # fmt: skip
    return http.json_response({"errors": errors or [{"message": error.message, "field": None, "help": None}]}, status)


def _read_token(request: Request) -> str:
    return auth.read_bearer_token(request)


DOOR = Door(
    "sendgrid",
    (DoorRoute("POST", f"{PATH}/v3/mail/send", send_mail, "messages:send", "messages", max_bytes=base.MAX_BODY_BYTES),),
    _read_token,
    _write_error,
    lambda path: path == PATH or path.startswith(f"{PATH}/"),
)
