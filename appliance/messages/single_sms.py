"""A single SMS before it is queued: what is wrong with it is told to whoever asks for it; nobody else will look."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from appliance import addresses
from appliance import brand as brands
from appliance.contacts import store as contacts
from appliance.designs.merge import MergeError
from appliance.errors import Faults
from appliance.messages import sms_rules, texts, values
from appliance.messages.texts import Worded
from appliance.sms import limits
from appliance.tables import Account, Channel, Contact

# What only a mail has: not looked at in an SMS, and named to who sends it
OF_MAIL = ("subject", "text", "from_email", "from_name", "reply_to", "headers")


class Asked(NamedTuple):
    """What an SMS shall say, to whom, and what for."""

    to: str
    body: str | None
    data: Mapping[str, Any]
    marketing: bool


class Ready(NamedTuple):
    """An address as it is written to, where the links lead that are counted, and the parts an SMS takes as of now."""

    address: addresses.Address
    links: list[str] | None
    segments: int | None


def look(account: Account, asked: Asked, faults: Faults) -> Ready:
    """Look at an SMS as it would be sent now; notes all that is wrong with it."""
    address = _address(asked.to, faults)
    links, segments = None, 0
    if not (asked.body or "").strip():
        faults.add("body", "can't be blank")
    elif fault := limits.fault(asked.body):
        faults.add("body", fault)
    else:
        try:
            links = [link.href for link in texts.links(asked.body)] if asked.marketing else None
            said = _worded(account, asked, links, address)
        except MergeError as error:
            faults.add("body", error.words())
        else:
            segments = said.counted.parts
            if problem := said.problem():
                faults.add("body", problem)
    return Ready(address, links, segments)


def _address(text: str, faults: Faults) -> addresses.Address:
    try:
        address = addresses.phone(text)
    except ValueError:
        faults.add("to", "is invalid")
        return addresses.Address("phone", "", "")
    if refused := sms_rules.refused(address.key):
        faults.add("to", refused[1])
    return address


def _worded(account: Account, asked: Asked, links: list[str] | None, address: addresses.Address) -> Worded:
    """Fill an SMS for its recipient as they are known now; of the hint as if it were due."""
    channel = Channel.get_or_none(
        Channel.account == account.id, Channel.kind == address.kind, Channel.key == address.key
    )
    contact = Contact.get_by_id(channel.contact_id) if channel is not None else None
    if contact is not None:
        contacts.load([contact])
    said = values.of_account(account, brands.get(account.id)) | {"data": asked.data}
    said |= values.of_contact(contact, address.value, "phone") | values.of_message(0) | texts.tokens()
    return texts.fill(texts.compiled(asked.body, links), said, account.sms_opt_out_hint if asked.marketing else None)
