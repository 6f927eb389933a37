"""Shapes within an account: what carries its messages, what it can do, how far it is, how much it sent."""

from msgspec import Struct

from appliance.api.shapes import Moment


class Transports(Struct):
    """What carries messages, by channel."""

    email: str
    sms: str


class Capabilities(Struct):
    """What an installation can do."""

    email: bool
    sms: bool
    tracking: bool
    inbound: bool


class FirstSteps(Struct):
    """The first steps of an account, each with whether it is done."""

    brand_setup: bool
    domain_verified: bool
    first_contact: bool
    first_draft: bool
    first_send: bool


class Progress(Struct):
    """How many of the first steps are done."""

    completed: int
    total: int


class Onboarding(Struct):
    """How far an account is."""

    steps: FirstSteps
    progress: Progress


class Usage(Struct):
    """What was handed over in the last 30 days, without tests."""

    since: Moment
    email_sent: int
    sms_sent: int
    sms_parts: int
