"""Ways out for SMS, one file each."""

from appliance.sms.providers.kind import Provider

# A new provider is one file and one line here
PROVIDERS: dict[str, Provider] = {}
