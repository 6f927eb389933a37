"""Hooks that tell what became of our mail, one file each."""

from appliance.inbound.feedback.providers import mailgun, own, postmark, sendgrid, ses
from appliance.inbound.feedback.providers.shared import Provider

# A new hook is one file and one name here
PROVIDERS: dict[str, Provider] = {
    one.PROVIDER.name: one.PROVIDER for one in (own, ses, postmark, mailgun, sendgrid)
}  # fmt: skip
