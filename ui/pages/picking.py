"""The picker of merge tags, one for every page with fields that take them."""

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content.designs import merge
from appliance.sending.messages import merge_tag_menu
from appliance.storage.work import call
from ui import view
from ui.forms import number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_picking", url_prefix="/templates")


@pages.get("/merge", name="merge")
@signed_in
async def show(request: Request, visit: Visit) -> HTTPResponse:
    """What merge tags there are, for the template `t` or for any, with examples and how many people lack each."""
    template_id = number(request.args.get("t"), 0, 10**9) or None
    groups = await call(merge_tag_menu.groups, visit.account_id, template_id)
    return view.page(request, "merge/menu.html", groups=groups, roots=merge.ROOTS)
