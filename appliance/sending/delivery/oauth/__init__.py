"""OAuth 2.0 (RFC 6749) with Google and Microsoft: the consent of a mailbox, and access tokens to send with."""

from appliance.sending.delivery.oauth.providers import GOOGLE, MICROSOFT, OAuthProvider

# A new provider needs an entry here, and its settings in `settings/schema.py`.
PROVIDERS: dict[str, OAuthProvider] = {provider.name: provider for provider in (GOOGLE, MICROSOFT)}
