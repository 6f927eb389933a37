"""What a merge tag may say: plain data about a person, the brand, the account and the message's own links."""

from typing import Any

from appliance.messages import links
from appliance.tables import Account, Brand, Channel, Contact


def of_contact(contact: Contact | None, address: str | None) -> dict[str, Any]:
    """Answer the `contact` root and the bare names."""
    if contact is None:
        return {"contact": {"email": address, "data": {}}, "first_name": None, "last_name": None, "email": address}
    channels: list[Channel] = getattr(contact, "channels", [])
    phone = next((channel.value for channel in channels if channel.kind == "phone"), None)
    email = address or next((channel.value for channel in channels if channel.kind == "email"), None)
    person = {
        "id": contact.id, "uuid": contact.uuid, "first_name": contact.first_name, "last_name": contact.last_name,
        "email": email, "phone": phone, "source": contact.source, "country_code": contact.country_code,
        "data": contact.data or {},
    }  # fmt: skip
    return {"contact": person, "first_name": contact.first_name, "last_name": contact.last_name, "email": email}


def of_account(account: Account, brand: Brand) -> dict[str, Any]:
    """Answer the `account` and `brand` roots."""
    return {
        "account": {"name": account.name},
        "brand": {
            "company_name": brand.company_name or account.name,
            "physical_address": brand.physical_address,
            "brand_color": brand.brand_color,
            "logo_url": brand.logo,
            "links": brand.links or [],
        },
    }


def of_message(message_id: int) -> dict[str, Any]:
    """Answer the links of one message."""
    stop = links.unsubscribe(message_id)
    # Preferences are part of the same page, so that a reader always finds both
    return {"unsubscribe_url": stop, "preferences_url": stop, "view_url": links.view(message_id)}
