"""The way in for whoever submits a form, through whichever door: counted, then done."""

from appliance import clients
from appliance.db.work import call, commit
from appliance.events import agents
from appliance.forms import accept, rates
from appliance.forms.reading import Submitted
from appliance.tables import Form

PER_RECIPIENT, PER_CLIENT = 10, 50


async def take(form: Form, said: Submitted, client: str, user_agent: str | None) -> None:
    """Do what a submission asks for; raises TooMany over a rate (docs/decisions.md#4, Rates per address)."""
    rates.check(f"form client:{clients.household(client)}", PER_CLIENT)
    rates.check(f"form recipient:{said.address.kind}:{said.address.key}", PER_RECIPIENT)
    # Read before, so that nobody's write waits for it
    await call(agents.device, agents.told(user_agent))
    await commit(accept.accept, form, said, client, user_agent)
