"""The SMS providers; each is one module."""

from appliance.sending.sms.providers.base import Provider
from appliance.sending.sms.providers.capture import Capture
from appliance.sending.sms.providers.http import Http
from appliance.sending.sms.providers.twilio import Twilio

# A new provider needs a module and an entry here.
PROVIDERS: dict[str, Provider] = {provider.name: provider for provider in (Capture(), Twilio(), Http())}
