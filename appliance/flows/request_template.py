"""The HTTP request of a step: its URL, secret values and JSON body with merge tags, and values of the response.

Merge tags are filled in within the decoded body, which is encoded afterwards, so that no value can change the structure
of the JSON. Secret values are encrypted for one account and one origin (RFC 6454, 4). So a user who changes the URL of
a step cannot have its stored secrets sent to another server.

The step may store values of a JSON response in the contact's custom data, and in the data of the run. The path of a
value has the keys and positions that lead to it, joined with dots, as in `result.items.0.price`.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MergeError, render_deadline
from appliance.core import crypto
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import safe_http
from appliance.sending.messages import merge_tags
from appliance.storage.models import Account, Contact

MAX_URL_CHARACTERS, MAX_PAYLOAD_BYTES, MAX_BODY_BYTES = 2_000, 16_384, 65_536
# A text of the body that consists of one merge tag gets the value with its type: a number stays a number.
_ONE_VALUE = re.compile(r"\s*\{\{-?\s*([A-Za-z]\w*(?:\.\w+)*)\s*-?\}\}\s*", re.ASCII)
_PURPOSE = "flow request secret"
# Where the values of a response are stored.
TO_CONTACT, TO_RUN = "save_to_contact", "save_to_run"
MAX_RESPONSE_BYTES = 65_536
MAX_VALUES, MAX_PATH_CHARACTERS, MAX_VALUE_BYTES = 20, 200, 4_096
_PATH = re.compile(r"[^.\x00-\x1f]+(?:\.[^.\x00-\x1f]+)*")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


class RequestSpec(NamedTuple):
    """The request of a step: URL and payload with merge tags, headers in plain text, and the secret that signs it.

    `payload` is None for a request without a body. `reads_response` says whether values of the response are stored.
    """

    method: str
    url: str
    headers: dict[str, str] = {}
    payload: Any = None
    signing_secret: str | None = None
    reads_response: bool = False


class UnusableRequest(Exception):
    """A request that cannot be made; `reason` is the reason code of the run."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# Secrets


def get_origin(url: str) -> str:
    """Return scheme, host and port of a URL as a text; "" if the URL is invalid."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return ""
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}" if parts.hostname else ""


def seal_secret(account_id: int, url: str, secret: str) -> str:
    """Return a secret encrypted for an account and the origin of a URL, as base64."""
    sealed = crypto.seal(crypto.derive_key(_PURPOSE), _label(account_id, url), secret.encode())
    return base64.b64encode(sealed).decode()


def unseal_secret(account_id: int, url: str, sealed: str) -> str:
    """Return the secret that `seal_secret` encrypted; raises UnusableRequest for another key, account or origin."""
    plain = crypto.unseal(crypto.derive_key(_PURPOSE), _label(account_id, url), base64.b64decode(sealed))
    if plain is None:
        raise UnusableRequest("secret_unreadable")
    return plain.decode()


def _label(account_id: int, url: str) -> str:
    return f"account:{account_id} {get_origin(url)}"


# Checks when a step is saved


def find_url_fault(url: str) -> str | None:
    """Return why a URL with merge tags cannot be requested, or None. Merge tags are allowed only after the host."""
    fixed = url.partition("{")[0]
    if "{" in url and not re.fullmatch(r"https?://[^/?#]+[/?#].*", fixed):
        return gettext("may have merge tags only after its host")
    fault = safe_http.find_url_fault(fixed)
    return gettext("is invalid") if fault is not None else merge.find_error(url, "url")


def find_payload_faults(payload: Any) -> Iterator[tuple[str, str]]:
    """Yield (path below the payload, message) for each text with invalid merge tags; the path is "" for the whole."""
    if not isinstance(payload, dict | list):
        yield "", gettext("must be a JSON object or list")
        return
    try:
        size = len(msgspec.json.encode(payload))
    except (UnicodeEncodeError, msgspec.MsgspecError, RecursionError):
        yield "", gettext("is invalid")
        return
    if size > MAX_PAYLOAD_BYTES:
        yield "", gettext("is too long (maximum is %(limit)s bytes)", limit=MAX_PAYLOAD_BYTES)
        return
    waiting: list[tuple[str, Any]] = [("", payload)]
    while waiting:
        path, value = waiting.pop(0)
        if isinstance(value, str) and (error := merge.find_error(value, "text")):
            yield path, error
        elif isinstance(value, dict):
            waiting += [(f"{path}.{key[:60]}", each) for key, each in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{path}[{index}]", each) for index, each in enumerate(value)]


# Filling in


def load_values(account_id: int, contact_id: int, event_data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of merge tags for a contact: `contact`, `event`, `account`, `brand`, and the short names."""
    contact = Contact.get_by_id(contact_id)
    contacts.load_relations([contact])
    account = Account.get_by_id(account_id)
    return {
        **merge_tags.get_account_values(account, brands.get(account_id)),
        **merge_tags.get_contact_values(contact, None), "event": dict(event_data),
    }  # fmt: skip


def fill_url(url: str, values: Mapping[str, Any]) -> str:
    """Return a URL with its merge tags filled in. Raises UnusableRequest if that fails or changes the origin."""
    if "{" not in url:
        return url
    try:
        filled = merge.compile_template(url, "url").render(values)
    except MergeError:
        raise UnusableRequest("invalid_request") from None
    if get_origin(filled) != get_origin(url.partition("{")[0]):
        raise UnusableRequest("invalid_request")
    return filled


def fill_payload(payload: Any, values: Mapping[str, Any]) -> bytes:
    """Return the JSON of a payload with its merge tags filled in.

    Raises UnusableRequest if a tag cannot be filled in, or if the JSON has more than `MAX_BODY_BYTES`.
    """
    until = render_deadline()

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill(each) for key, each in value.items()}
        if isinstance(value, list):
            return [fill(each) for each in value]
        if not isinstance(value, str) or "{" not in value:
            return value
        match = _ONE_VALUE.fullmatch(value)
        single_value = _find_value(values, match[1]) if match else None
        if single_value is not None:
            return single_value
        return merge.compile_template(value, "text").render(values, until)

    try:
        body = msgspec.json.encode(fill(payload))
    except (MergeError, msgspec.MsgspecError, UnicodeEncodeError, RecursionError, TypeError):
        raise UnusableRequest("invalid_request") from None
    if len(body) > MAX_BODY_BYTES:
        raise UnusableRequest("invalid_request")
    return body


def _find_value(values: Any, path: str) -> Any:
    """Return the number, boolean, list or object at a dotted path, or None."""
    for name in path.split("."):
        values = values.get(name) if isinstance(values, Mapping) else None
    return values if isinstance(values, bool | int | float | list | dict) else None


# The texts of the reason codes of failed requests. `http_404` and similar codes have texts of their own.
REASONS = {
    "timed_out": gettext_noop("no answer came in time"),
    "unreachable": gettext_noop("the server cannot be reached"),
    "invalid_response": gettext_noop("the response cannot be read"),
    "invalid_request": gettext_noop("the request cannot be filled in"),
    "secret_unreadable": gettext_noop("its secret values cannot be read"),
    "failed_request": gettext_noop("the request failed with an internal error"),
}
_STATUS = re.compile(r"http_([1-9][0-9]{2})")


def describe_reason(reason: str | None) -> str | None:
    """Return the text of a reason code of a request, in the current language; None for any other code."""
    if reason is None:
        return None
    match = _STATUS.fullmatch(reason)
    if match is not None:
        return gettext("the server responded with status %(status)s", status=match[1])
    return gettext(REASONS[reason]) if reason in REASONS else None


def find_mapping_faults(mapping: Any) -> list[tuple[str, str]]:
    """Return (key, message) for each error of a mapping from names to paths; the key is "" for the whole mapping."""
    if not isinstance(mapping, dict):
        return [("", gettext("is invalid"))]
    if len(mapping) > MAX_VALUES:
        return [("", gettext("is too long (maximum is %(max)s items)", max=MAX_VALUES))]
    faults = []
    for key, path in mapping.items():
        if not _KEY.fullmatch(key):
            faults.append((key[:64], gettext("is not a valid name")))
        elif not isinstance(path, str) or len(path) > MAX_PATH_CHARACTERS or not _PATH.fullmatch(path):
            faults.append((key, gettext("is invalid")))
    return faults


def pick_values(response: Any, props: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the values that a step chooses from a decoded response, by place (where they are stored) and name.

    A path without a value, or with null, is left out. Raises ValueError for a value of more than `MAX_VALUE_BYTES`.
    """
    return {
        target: {key: value for key, path in (props.get(target) or {}).items()
                 if (value := _pick(response, path)) is not None}
        for target in (TO_CONTACT, TO_RUN)
    }  # fmt: skip


def _pick(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdecimal() and len(part) < 6:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    if len(msgspec.json.encode(value)) > MAX_VALUE_BYTES:
        raise ValueError(f"{path} is too long")
    return value
