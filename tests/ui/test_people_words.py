"""What the rules say in the words of programs is said to people in theirs."""

import pytest

from appliance.sending.messages import senders
from appliance.sending.sms import error_codes
from ui import formats


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (senders._LACKS_SENDER, "SMS are from nobody: set a number or name in the account."),
        (senders._PROVIDER_CHOOSES, "No sender is named: whatever carries the SMS has to know its own."),
        (
            error_codes._LOGIN_HELP,
            "The provider rejected the login: check account and token in the settings for sending.",
        ),
        (error_codes._RATE_HELP, "Send more slowly: limit SMS a second, or those of this sender."),
        ("want https for one-click unsubscribing (RFC 8058)", "Want https for one-click unsubscribing."),
        ("this is in use (twice, here)", "This is in use (twice, here)"),
    ],
)  # fmt: skip
def test_names_of_settings_are_for_programs(rule: str, said: str) -> None:
    """A sentence on a page names no key of a configuration and no standard; other brackets stay."""
    assert formats.sentence(rule) == said
