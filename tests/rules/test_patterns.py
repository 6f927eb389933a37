"""No regular expression of the product takes quadratic time: one text could stop the service for a minute.

The interpreter lock is held while a pattern is matched, so no other request is served meanwhile.
"""

import re
import time

import pytest

from appliance.inbound import bounce_mail
from tests.kit import patterns
from tests.kit.sampling import every_nth

# Patterns that take quadratic time, for texts that are never longer than this: (characters, reason). A text that is
# case-folded after its length is checked can have three times the characters.
BOUNDS = {
    "appliance.sending.messages.sender_headers._QUOTED": (2_000, "_MAX_FROM_BYTES"),
    "appliance.campaigns.report._RECIPIENT_DETAILS": (1_000, "_MAX_REPLY_CHARACTERS"),
    "appliance.core.addresses._WORDS": (3 * 255, "MAX_WRITTEN_PHONE_CHARACTERS"),
    "appliance.core.addresses._EXTENSION": (3 * 255, "MAX_WRITTEN_PHONE_CHARACTERS"),
    "appliance.imports.people._QUOTED_NAME": (257, "_MAX_QUOTED_NAME_CHARACTERS"),
    "appliance.imports.columns._WEEKDAY": (3 * 40, "_MAX_DATE_CHARACTERS"),
    "appliance.imports.columns._YEAR_FIRST": (3 * 40, "_MAX_DATE_CHARACTERS"),
    "appliance.imports.columns._YEAR_LAST": (3 * 40, "_MAX_DATE_CHARACTERS"),
    "appliance.imports.columns._DAY_NAMED": (3 * 40, "_MAX_DATE_CHARACTERS"),
    "appliance.imports.columns._NAMED_DAY": (3 * 40, "_MAX_DATE_CHARACTERS"),
    "appliance.sending.sms.keywords._REFUSAL": (200, "_MAX_REFUSAL_CHARACTERS"),
    "ui.formats._ASCII_DOMAIN": (255, "_MAX_DOMAIN_CHARACTERS"),
    "ui.documentation.load_guide": (1_000, "the guides are ours, and `.` stops at the end of a line"),
    "ui.documentation._split_parts": (1_000, "the guides are ours"),
}


def test_no_pattern_takes_quadratic_time() -> None:
    """Each pattern of appliance and ui costs little for 20,000 characters, or for the bound of its texts."""
    sites = patterns.collect_sites()
    slow = []
    for site in sites:
        length, _ = BOUNDS.get(site.where, (patterns.LENGTH, ""))
        text = patterns.find_slow_text(site.regex, site.methods, length)
        if text is not None:
            slow.append(f"{site.where}: {text}")
    assert not slow, "\n".join(slow)
    assert len(sites) > 250
    assert BOUNDS.keys() <= {site.where for site in sites}


# The most characters of one returned mail that each of these patterns reads in one call; the others of the modules that
# read returned mail may read all of it.
INBOUND_MODULES = ("appliance.inbound.bounce_mail.", "appliance.inbound.smtp_servers.")
INBOUND_BOUNDS = {
    "appliance.core.addresses._NEEDLESS_QUOTES": 20_000,  # _MAX_BOUNCE_CHARACTERS
    "appliance.inbound.bounce_mail.ADDRESS": 20_000,  # _MAX_BOUNCE_CHARACTERS
    "appliance.inbound.bounce_mail.bounce_text": 40_000,  # twice _MAX_BOUNCE_CHARACTERS
    "appliance.inbound.bounce_mail._BOUNCE_SUBJECT": 2_000,  # _MAX_TYPE_BYTES
    "appliance.inbound.bounce_mail._BOUNCE_TEXT": 20_000,  # _MAX_BOUNCE_CHARACTERS
    "appliance.inbound.bounce_mail._ORIGINAL": 20_000,  # _MAX_BOUNCE_CHARACTERS
    "appliance.sending.messages.links._SIGNED_RETURN_PATH": bounce_mail.MAX_BYTES,
    "appliance.sending.messages.links._SIGNED_UNSUBSCRIBE_ADDRESS": bounce_mail.MAX_BYTES,
    "appliance.sending.messages.links._SIGNED_UNSUBSCRIBE_URL": bounce_mail.MAX_BYTES,
}


def test_no_pattern_holds_up_the_service_for_a_mail() -> None:
    """Each pattern that reads returned mail costs little for all the text that it reads in one call (T35)."""
    sites = patterns.collect_sites()
    costly = []
    for site in sites:
        if site.where in INBOUND_BOUNDS or site.where.startswith(INBOUND_MODULES):
            length = INBOUND_BOUNDS.get(site.where, bounce_mail.MAX_BYTES)
            text = patterns.find_costly_text(site.regex, site.methods, length)
            if text is not None:
                costly.append(f"{site.where}: {text}")
    assert not costly, "\n".join(costly)
    assert INBOUND_BOUNDS.keys() <= {site.where for site in sites}


@pytest.mark.parametrize(
    ("pattern", "method"),
    every_nth([
        (r"\([^)\d]*\)", "sub"),
        (r"[\s,;]*(?:ext|x)[.:\s]*\d{1,6}\Z", "sub"),
        (r"[^\s<>]+@[^\s<>]+", "findall"),
        (r"\s*([^:=]{1,100}?)\s*[:=]\s*(.*)", "fullmatch"),
        (r"@(?:charset|import|namespace)\b[^;{}]*(?:;|\Z)", "sub"),
        (r"(?:<p>(?:\s|&nbsp;|<br>)*</p>\s*)+\Z", "sub"),
        (r"<!--.*?-->", "search"),
        (r"(?:a|b|ab)*c", "match"),
        (rb"(\w+\s?)*:", "match"),
    ], 2),
)  # fmt: skip
def test_quadratic_patterns_are_found(pattern: str | bytes, method: str) -> None:
    """The measurement finds patterns that take quadratic or exponential time, within seconds."""
    start = time.thread_time()
    text = patterns.find_slow_text(re.compile(pattern), {method})
    assert text is not None
    assert time.thread_time() - start < 10
