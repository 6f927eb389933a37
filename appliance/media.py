"""Pictures that mails show: kept in the database, served under names that nobody can guess."""

from appliance import config

PATH = "/m/"


def url(signed_id: str) -> str:
    """Answer the public address of a picture."""
    return f"{config.base_url(config.current())}{PATH}{signed_id}"


def shown(address: str | None) -> str | None:
    """Answer what is written where a picture stands, a signed id or an address, as an address."""
    if not address or address.lower().startswith(("http://", "https://")):
        return address or None
    return url(address)
