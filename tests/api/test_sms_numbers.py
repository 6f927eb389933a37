"""Valid and invalid recipients of an SMS."""

import pytest

from tests.kit.client import Client

NOWHERE = "is not a number of a phone network"
DEAR = "is a premium-rate or shared-cost number"
# The number in the request, and its normal form or the error
NUMBERS = [
    ("+14155552671", "+14155552671"), ("+1 (202) 555-0143", "+12025550143"), ("+1.808.555.0123", "+18085550123"),
    ("+14035550123", "+14035550123"), ("+17875550123", "+17875550123"), ("+12425550123", "+12425550123"),
    ("+18005550123", "+18005550123"), ("+447700900123", "+447700900123"), ("+44 20 7946 0000", "+442079460000"),
    ("+4915112345678", "+4915112345678"), ("+49 30 12345678", "+493012345678"), ("+33612345678", "+33612345678"),
    ("+34612345678", "+34612345678"), ("+5511961234567", "+5511961234567"), ("+61491570006", "+61491570006"),
    ("+79261234567", "+79261234567"), ("+8613812345678", "+8613812345678"), ("+80012345678", "+80012345678"),
    ("+19005551234", DEAR), ("+449098790000", DEAR), ("+33899123456", DEAR), ("+491805123456", DEAR),
    ("+1415555", NOWHERE), ("+141555526710", NOWHERE), ("+999123456789", NOWHERE), ("+3301234567890", NOWHERE),
    ("4155552671", "is invalid"), ("+0415552671", "is invalid"), ("+1415555O123", "is invalid"),
    ("+12345", "is invalid"),
]  # fmt: skip


def test_valid_and_invalid_numbers(api: Client) -> None:
    """Each number is returned in its normal form, or rejected at `to` with the reason."""
    assert len(NUMBERS) == 30
    for given, expected in NUMBERS:
        response = api.post("/messages", {"channel": "sms", "to": given, "body": "Hi"})
        if expected.startswith("+"):
            assert response.expect(201)["to"] == expected, given
        else:
            assert response.expect(422)["validation_errors"] == {"to": [expected]}, given


@pytest.mark.parametrize("body", ["Hi", ""])
def test_number_errors_are_reported_with_others(api: Client, body: str) -> None:
    """The error of a number is reported together with other errors."""
    error = api.post("/messages", {"channel": "sms", "to": "+19005551234", "body": body}).expect(422)
    assert error["validation_errors"] == {"to": [DEAR]} | ({} if body else {"body": ["can't be blank"]})
