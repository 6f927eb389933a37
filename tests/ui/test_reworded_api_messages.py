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
