"""Build the checklist of a campaign: the findings of its preflight, grouped by their effect on sending."""

from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.campaigns.preflight import Preflight
from appliance.content.templates.placeholders import UNFINISHED_CODES
from appliance.core.i18n import gettext, gettext_noop, ngettext
from ui import formats
from ui.session import Visit

# Codes of findings that the checklist leaves out, since the render check shows them with the contacts concerned.
_RENDER_CHECK_CODES = ("missing_value", "render_error")
# The card that fixes a finding, by the start of the finding's field. `_FIX_PAGES` has other pages, by the code of the
# finding.
_CARD_BY_FIELD = (
    ("trigger_attributes", "to"), ("confirm_send_to_all", "to"), ("template_attributes.body", "content"),
    ("template_attributes.design", "content"), ("template_attributes", "from"), ("scheduled_at", "when"),
)  # fmt: skip
# Sentences by the code of a finding. Any other finding is shown with its message.
_FINDING_SENTENCES = {
    "base_url_http": gettext_noop(
        "Mailbox providers require https for one-click unsubscribe. Ask your administrator to set it up."
    ),
    "opt_out_hint_missing": gettext_noop(
        "The text does not say how to opt out. Add “Reply STOP to opt out”, or set an opt-out text in the settings."
    ),
}
_FIX_PAGES = {
    "postal_address": "/brand", "not_tested": "/campaigns/{}/test", "parts_per_day": "/settings",
    "base_url_http": "/docs/guides/https",
}  # fmt: skip


class FindingGroup(NamedTuple):
    """The findings that have the same effect on sending.

    `rows` are (colour class, sentence, URL); the URL is empty if the user may not open the page.
    """

    title: str
    explanation: str
    count_label: str
    rows: list[tuple[str, str, str]]


class Checklist(NamedTuple):
    """The groups that have findings, the most severe first, and a text with the number of findings in each."""

    groups: list[FindingGroup]
    summary: str


# Titles and explanations of the groups. Only findings of the first group prevent a send, and only those of the second
# need a confirmation.
_REQUIRED = gettext_noop("Required"), gettext_noop("Fix these before you send.")
_UNFINISHED = (
    gettext_noop("Unfinished content"),
    gettext_noop("Replace it, or confirm when you send that you want it as it is."),
)
_RECOMMENDED = gettext_noop("Recommended"), gettext_noop("You can send without these.")


def build_checklist(preflight_result: Preflight, campaign_id: int, visit: Visit) -> Checklist:
    """Return the checklist of a campaign, with links to the pages that the user may open."""
    warnings = [finding for finding in preflight_result.warnings if finding.code not in _RENDER_CHECK_CODES]
    unfinished = [finding for finding in warnings if finding.code in UNFINISHED_CODES]
    recommended = [finding for finding in warnings if finding.code not in UNFINISHED_CODES]
    groups = []
    kinds: tuple[tuple[str, tuple[str, str], Callable[[int], str], list[Any]], ...] = (
        (
            "bad",
            _REQUIRED,
            lambda many: ngettext("%(num)s required", "%(num)s required", many),
            preflight_result.blockers,
        ),
        ("warn", _UNFINISHED, lambda many: ngettext("%(num)s unfinished", "%(num)s unfinished", many), unfinished),
        ("muted", _RECOMMENDED, lambda many: ngettext("%(num)s recommended", "%(num)s recommended", many), recommended),
    )
    for tone, (title, explanation), count, findings in kinds:
        rows = []
        for finding in findings:
            href = fix_url(finding, campaign_id, "sms" in preflight_result.facts)
            rows.append((tone, finding_sentence(finding), href if visit.can_open(href) else ""))
        if rows:
            groups.append(FindingGroup(gettext(title), gettext(explanation), count(len(rows)), rows))
    return Checklist(groups, ", ".join(group.count_label for group in groups))


def finding_sentence(finding: Any) -> str:
    """Return a preflight finding as a sentence."""
    if finding.code in _FINDING_SENTENCES:
        return gettext(_FINDING_SENTENCES[finding.code])
    return formats.sentence(finding.message)


# The path of a finding about all translations; that of one language follows after a dot.
_TRANSLATIONS = "template_attributes.translations"


def fix_url(finding: Any, campaign_id: int, is_sms: bool = False) -> str:
    """Return the URL of the page or card that fixes a finding of an email or SMS campaign, or an empty string."""
    if finding.code in _FIX_PAGES:
        return _FIX_PAGES[finding.code].format(campaign_id)
    if finding.code.startswith("domain_"):
        return "/settings/domains"
    if finding.code == "sender_not_ready":
        if is_sms:
            return "/settings/sending"
        # An email's sender lacks a verified domain for its From address, or the brand lacks the postal address.
        return "/settings/domains" if finding.field.startswith("template") else "/brand"
    if finding.field.startswith(_TRANSLATIONS):
        return f"/campaigns/{campaign_id}/translations{finding.field.removeprefix(_TRANSLATIONS).replace('.', '/')}"
    if ".design." in finding.field:
        path = finding.field.partition(".design.")[2]
        return f"/campaigns/{campaign_id}/content?path={path}&fix={finding.code}"
    match = next((card for start, card in _CARD_BY_FIELD if finding.field.startswith(start)), None)
    return f"/campaigns/{campaign_id}?open={match}#card-{match}" if match else ""
