"""What many messages share: the compiled content of a campaign, or of a flow's step in one version."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from appliance.content.designs import merge
from appliance.content.designs.theme import Look
from appliance.core import addresses, clock
from appliance.sending.delivery import mime
from appliance.sending.messages import compose, flow_content, texts, values
from appliance.sending.messages.compose import Content, Parts, Sender
from appliance.settings import config
from appliance.storage.models import Campaign, TemplateRevision
from appliance.storage.open import fetch_one, rows

# Which conditions of a message hold for its recipients, asked for many at a time: a sender never asks one by one.

# For how long an answer is taken for true
_KEPT_MS = 60_000


class Showing:
    """The conditions of one campaign or step, for one thread that sends it."""

    def __init__(self, account_id: int, conditions: Mapping[str, list[Any]]) -> None:
        self._account_id, self._conditions = account_id, conditions
        self._known: dict[int, dict[str, bool]] = {}
        self._expected: frozenset[int] = frozenset()
        self._until = 0

    def expect(self, contact_ids: Iterable[int]) -> None:
        """Be told who comes next, instead of those told before."""
        self._expected = frozenset(contact_ids)

    def to(self, contact_id: int | None) -> dict[str, Any]:
        """Return the `show` root for a recipient; those who are expected are asked about with it."""
        if contact_id is None or not self._conditions:
            return values.shown(self._account_id, None, self._conditions)
        now = clock.now_ms()
        if contact_id not in self._known or now >= self._until:
            self._known = values.shown_to(self._account_id, {contact_id, *self._expected}, self._conditions)
            self._until = now + _KEPT_MS
        return {"show": self._known[contact_id]}


_RUNS = "SELECT id, version, event_data FROM run WHERE id IN (SELECT value FROM json_each(?))"
_STEP = (
    "SELECT s.content_id, s.pinned, f.account_id, s.kind FROM step s JOIN flow f ON f.id = s.flow_id "
    "WHERE s.flow_id = ? AND s.version = ? AND s.action_id = ?"
)


class OfStep(NamedTuple):
    """A step in one version of its flow."""

    flow_id: int
    version: int
    action_id: int


# A campaign by its id, or a step of a flow
SourceId = int | OfStep


class Own(NamedTuple):
    """What an account says about its SMS: who they are from, and how to leave."""

    sender: str | None
    hint: str | None


class Kept(NamedTuple):
    """What all messages of a source share; of SMS the content is a text alone, its links as they lead."""

    content: Content
    parts: Parts
    tracked: Parts | None  # the same with links that lead through us
    sender: Sender
    shared: dict[str, Any]
    headers: bytes
    needs: frozenset[str]  # the kinds of addresses that it may say beside the one it goes to
    showing: Showing | None = None
    shown_as: int | None = None  # of a test: the contact whose values it shows
    is_marketing: bool = True
    own: Own | None = None  # of a campaign of SMS, as it went live; all else goes by what the account says now


class Started(NamedTuple):
    """Of a run what its messages need: its version, and the data of the event that started it."""

    version: int
    event: dict[str, Any]


def started(run_ids: Iterable[int]) -> dict[int, Started]:
    """Return what runs began with."""
    found = rows(_RUNS, (msgspec.json.encode(list(run_ids)).decode(),))
    return {number: Started(version, msgspec.json.decode(data or "{}")) for number, version, data in found}


def compile_source(source: SourceId) -> Kept:
    """Compile what all messages of a source share; raises MergeError or ValueError if it cannot be."""
    return _of_step(source) if isinstance(source, OfStep) else _of_campaign(source)


def _of_campaign(campaign_id: int) -> Kept:
    campaign = Campaign.get_by_id(campaign_id)
    said = campaign.pinned
    document = TemplateRevision.get_by_id(campaign.content_id).document
    if campaign.channel == "sms":
        kept = text(campaign.account_id, document["body"], _links_of(campaign), said["values"])
        return kept._replace(own=Own(*said["sms"]))
    content = compose.compile_source(compose.source_of(document, Look(*said["look"]), said["locale"], marketing=True))
    sender = Sender(campaign.sender["email"], campaign.sender["name"], campaign.sender["reply_to"])
    headers = compose.list_headers(
        campaign_id, said["list_name"], said["list_id"], domain_of(sender.email), campaign.account_id
    )
    return _kept(content, _links_of(campaign), sender, said["values"], mime.head(headers), campaign.account_id)


def _links_of(campaign: Campaign) -> list[str] | None:
    """Return where the links of a campaign lead, by number; None where they are not counted."""
    if not campaign.pinned["tracking"]:
        return None
    return [url for (url,) in rows("SELECT url FROM link WHERE campaign_id = ? ORDER BY number", (campaign.id,))]


def _of_step(step: OfStep) -> Kept:
    found = fetch_one(_STEP, step)
    if found is None or found[0] is None:
        raise ValueError("its step says nothing")
    said = msgspec.json.decode(found[1])
    links = [url for url, _ in said["links"]] if said["tracking"] else None
    account_id, is_marketing = int(found[2]), not said["transactional"]
    if found[3] == "sms":
        body = TemplateRevision.get_by_id(found[0]).document["body"]
        return text(account_id, body, links, said["values"])._replace(is_marketing=is_marketing)
    content = flow_content.compiled(TemplateRevision.get_by_id(found[0]).document, said)
    sender = Sender(said["sender"]["email"], said["sender"]["name"], said["sender"]["reply_to"])
    headers: tuple[tuple[str, str], ...] = (("Auto-Submitted", "auto-generated"),)
    if is_marketing:
        headers = compose.list_headers(None, said["list_name"], said["list_id"], domain_of(sender.email), account_id)
    kept = _kept(content, links, sender, said["values"], mime.head(headers), account_id)
    return kept._replace(is_marketing=is_marketing)


def text(account_id: int, body: str | None, links: list[str] | None, shared: dict[str, Any]) -> Kept:
    """Return what all SMS that say the same share; `links`, by their numbers, lead through us. Raises MergeError."""
    nothing = merge.compile_template(None, "text")
    content = Content(nothing, nothing, texts.compiled(body, links), nothing)
    return Kept(
        content, Parts(content), None, Sender("", None, None), shared, b"", needed(content, "email"),
        Showing(account_id, {}),
    )  # fmt: skip


def needed(content: Content, kind: str) -> frozenset[str]:
    """Return whether a content may say an address of this kind, as the set of kinds to be known."""
    said = {"contact", f"contact.{kind}"} | ({"email"} if kind == "email" else set())
    return frozenset() if said.isdisjoint(content.variables()) else frozenset({kind})


def _kept(
    content: Content, links: list[str] | None, sender: Sender, shared: dict[str, Any], headers: bytes, account_id: int
) -> Kept:
    return Kept(
        content, Parts(content), None if links is None else tracked(content, links), sender, shared, headers,
        needed(content, "phone"), Showing(account_id, content.conditions),
    )  # fmt: skip


def tracked(content: Content, links: list[str]) -> Parts:
    """Return the parts of a content whose links lead through us."""
    return Parts(compose.tracked(content, tuple(links), config.base_url(config.current())))


def domain_of(address: str) -> str:
    """Return the domain of an address in its ASCII form."""
    ascii_form = addresses.ascii_form(address) or address
    return ascii_form.rpartition("@")[2]
