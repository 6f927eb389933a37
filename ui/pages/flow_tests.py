"""The tests of random splits: a person chooses the winner, or goes on with the test."""

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import errors
from appliance.flows import split_results, split_tests
from appliance.flows.split_tests import ChooseBranch
from appliance.storage.transactions import commit, scan
from ui import view
from ui.forms import Form
from ui.guard import signed_in
from ui.pages.flow_editor import step_url
from ui.session import Pages, Visit

pages = Pages("ui_flow_tests", url_prefix="/flows")


@pages.post("/<flow_id:int>/steps/<step_id:int>/winner")
@signed_in("campaigns:send")
async def choose_winner(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Choose the branch that all contacts take who come to a random split, or go on with its test without a branch."""
    choice = ChooseBranch(step_id, Form.from_request(request)["branch"] or None)
    decision = await scan(split_results.find_decision, visit.account_id, flow_id, choice)
    try:
        await commit(split_tests.choose, visit.account_id, flow_id, choice, decision, visit.actor)
    except errors.Invalid:
        raise errors.NotFound from None  # The branch was removed since the page was shown.
    return view.redirect(request, step_url(flow_id, step_id))
