"""The way in for whoever submits a form, through whichever door: counted, then done."""

from appliance.core import client_ip
from appliance.events import agents
from appliance.forms import accept, store
from appliance.forms.reading import Submitted
from appliance.storage.models import Form
from appliance.storage.work import call, commit

PER_RECIPIENT, PER_CLIENT = 10, 50


async def take(form: Form, said: Submitted, client: str, user_agent: str | None) -> None:
    """Do what a submission asks for; raises TooMany over a rate (docs/decisions.md#4, Rates per address)."""
    store.check_rate(f"form client:{client_ip.household(client)}", PER_CLIENT)
    store.check_rate(f"form recipient:{said.address.kind}:{said.address.key}", PER_RECIPIENT)
    # Read before, so that nobody's write waits for it
    await call(agents.device, agents.told(user_agent))
    await commit(accept.accept, form, said, client, user_agent)
