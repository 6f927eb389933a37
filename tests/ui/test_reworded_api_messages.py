"""Messages for programs are reworded for users of the pages."""

import pytest

from appliance.sending.messages import senders
from appliance.sending.sms import error_codes
from ui import formats


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (senders._LACKS_SENDER, "The SMS has no sender: set a number or name in the account."),
        (senders._PROVIDER_CHOOSES, "No sender is set: the provider has to use its own."),
        (
            error_codes._LOGIN_HELP,
            "The provider rejected the login: check account and token in the settings for sending.",
        ),
        (error_codes._RATE_HELP, "Send more slowly: limit SMS a second, or those of this sender."),
        ("want https for one-click unsubscribing (RFC 8058)", "Want https for one-click unsubscribing."),
        ("this is in use (twice, here)", "This is in use (twice, here)"),
    ],
)  # fmt: skip
def test_sentences_name_no_settings(message: str, expected: str) -> None:
    """A sentence on a page names no settings and no standards; other parentheses stay."""
    assert formats.sentence(message) == expected


@pytest.mark.parametrize(
    ("part", "expected"), [(1 / 376, "0.27%"), (0.0033, "0.33%"), (0.003, "0.3%"), (0.001, "0.1%")]
)
def test_a_rate_near_its_limit_does_not_read_like_it(part: float, expected: str) -> None:
    """A rate has two decimals if it would otherwise read like the limit beside it, without being the limit."""
    assert formats.share_of_limit(part, 0.003) == expected
