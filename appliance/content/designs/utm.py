"""UTM parameters: their values with fields such as `{{ campaign.name }}`, and adding them to the links of a message.

Web analytics reads them from the address of a visit. docs/decisions.md#16 has the rules.
"""

import re
import unicodedata
from collections.abc import Mapping
from html import escape
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote_plus, urlsplit

from msgspec import Meta, Struct

from appliance.content.designs import links, markup
from appliance.content.designs.links import LinkPosition
from appliance.core.errors import Faults
from appliance.core.i18n import gettext

MAX_VALUE_CHARACTERS = 100
# The parameters in the order in which they are added.
NAMES = ("source", "medium", "campaign", "term", "content")
# The fields that a value may contain. In a flow, `campaign` is the flow.
FIELDS = ("campaign.name", "campaign.id", "account.name", "channel", "variant", "step")
_FIELD = re.compile(r"\{\{\s*([a-z_.]+)\s*\}\}")
_OUTSIDE_OF_SLUGS = re.compile(r"[\W_]+")

UtmValue = Annotated[str, Meta(max_length=MAX_VALUE_CHARACTERS, extra={"line": True})]


class UtmWrite(Struct):
    """The UTM parameters of links; one without a value is not added.

    Values may contain `{{ campaign.name }}`, `{{ campaign.id }}`, `{{ account.name }}`, `{{ channel }}`,
    `{{ variant }}` and `{{ step }}`.
    """

    source: Annotated[UtmValue, Meta(description="`utm_source`, such as `newsletter`")] | None = None
    medium: Annotated[UtmValue, Meta(description="`utm_medium`, such as `email`")] | None = None
    campaign: Annotated[UtmValue, Meta(description="`utm_campaign`, such as `{{ campaign.name }}`")] | None = None
    term: Annotated[UtmValue, Meta(description="`utm_term`")] | None = None
    content: Annotated[UtmValue, Meta(description="`utm_content`")] | None = None


# The parameters of a message as (name, value), such as ("utm_source", "newsletter").
Parameters = tuple[tuple[str, str], ...]


class LinkTagger(NamedTuple):
    """Adds UTM parameters to links; `own_urls` are the URLs of the service, whose links get none."""

    parameters: Parameters
    own_urls: tuple[str, ...]

    def tag(self, address: str) -> str:
        """Return an address with the parameters that it does not have, or the same address if it may get none.

        Everything that is there stays as it is, in its order: also a parameter with an empty value, and the fragment.
        An address gets none if it is not http(s), its host is not literal, it is one of the service, or it contains
        a condition or loop.
        """
        if not links.has_literal_host(address) or "{%" in address or self._is_own(address):
            return address
        masked = markup.mask_tags(address)
        end = masked.find("#") if "#" in masked else len(address)
        start = masked.find("?", 0, end)
        present = {
            unquote_plus(part.partition("=")[0]).lower() for part in masked[start + 1 : end].split("&") if start >= 0
        }
        missing = [f"{name}={quote(value, safe='')}" for name, value in self.parameters if name not in present]
        if not missing:
            return address
        joint = "?" if start < 0 else "" if end == start + 1 or masked[end - 1] == "&" else "&"
        return f"{address[:end]}{joint}{'&'.join(missing)}{address[end:]}"

    def _is_own(self, address: str) -> bool:
        return any(self._is_below(own_url, address) for own_url in self.own_urls)

    @staticmethod
    def _is_below(own_url: str, address: str) -> bool:
        try:
            own, other = urlsplit(own_url), urlsplit(markup.mask_tags(address))
            is_same_host = (own.hostname, own.port) == (other.hostname, other.port)
        except ValueError:
            return True  # No browser opens an address whose host or port is invalid.
        path = own.path.rstrip("/")
        return is_same_host and (other.path == path or other.path.startswith(f"{path}/") or not other.path)

    def tag_message(self, html: str, text: str) -> tuple[str, str]:
        """Return (HTML, text) of an email, which may have merge tags, with the parameters in all their links."""
        positions = links.find_positions_in_html(html)
        known = {position.address for position in positions}
        tagged_text = self._tag_positions(text, list(links.find_positions_in_text(text, known)), is_html=False)
        return self._tag_positions(html, positions, is_html=True), tagged_text

    def tag_sms(self, body: str) -> str:
        """Return the text of an SMS with the parameters in its tracked links.

        The SMS does not become longer, because recipients get a short tracking address.
        """
        bound = links.find_loop_variables(body)
        positions = [
            position
            for position in links.find_positions_in_text(body, set())
            if links.is_trackable(position.address, bound)
        ]
        return self._tag_positions(body, positions, is_html=False)

    def _tag_positions(self, source: str, positions: list[LinkPosition], is_html: bool) -> str:
        parts: list[str] = []
        cut = 0
        for position in positions:
            address = self.tag(position.address)
            if address != position.address:
                parts += (source[cut : position.start], _escape(address) if is_html else address)
                cut = position.end
        return "".join((*parts, source[cut:]))


def _escape(address: str) -> str:
    """Return an address for an attribute of HTML, with unchanged merge tags."""
    parts = markup.split_tags(address)
    return "".join(part if index % 2 else escape(part) for index, part in enumerate(parts))


def find_value_error(value: str | None) -> str | None:
    """Return the message of a field error, or None; a value may contain the merge tags of `FIELDS` and no others."""
    for name in _FIELD.findall(value or ""):
        if name not in FIELDS:
            return gettext("%(name)s is not a field of UTM parameters", name=f"{{{{ {name} }}}}")
    if "{{" in _FIELD.sub("", value or "") or "{%" in (value or ""):
        return gettext("is invalid")
    return None


def validate(settings: object, prefix: str, faults: Faults) -> None:
    """Add the errors of UTM values to `faults`, at `prefix` and their names, if `settings` is a `UtmWrite`."""
    for name in NAMES if isinstance(settings, UtmWrite) else ():
        if error := find_value_error(getattr(settings, name)):
            faults.add(prefix + name, error)


def to_slug(text: str) -> str:
    """Return a text in lower case with a hyphen instead of each run of other characters than letters and digits."""
    folded = unicodedata.normalize("NFKC", text).lower()
    return _OUTSIDE_OF_SLUGS.sub("-", folded).strip("-")[:MAX_VALUE_CHARACTERS].strip("-")


def resolve(settings: Mapping[str, Any], values: Mapping[str, str]) -> Parameters:
    """Return the parameters of a message from the stored form of `UtmWrite`, without those that are empty.

    `values` are those of `FIELDS`; they are inserted as slugs (`to_slug`), and a field without a value is empty.
    """
    resolved = []
    for name in NAMES:
        template = settings.get(name) or ""
        value = _FIELD.sub(lambda match: to_slug(values.get(match[1], "")), template).strip()
        if value:
            resolved.append((f"utm_{name}", value[: 2 * MAX_VALUE_CHARACTERS]))
    return tuple(resolved)


def to_stored(settings: UtmWrite | None) -> dict[str, str] | None:
    """Return `UtmWrite` as it is stored, with only the values that are not empty, or None without any settings."""
    if settings is None:
        return None
    values = {name: (getattr(settings, name) or "").strip() for name in NAMES}
    return {name: value for name, value in values.items() if value}
