"""First run: the one-time link makes the first person; the screens of `welcome` follow."""

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit, onboarding, users
from appliance.accounts.acting import By
from appliance.core import errors
from appliance.storage.work import call, commit
from ui import session, view
from ui.forms import Form
from ui.guard import open_page, problem
from ui.session import Pages

pages = Pages("ui_setup")
# The screens in their order: the last part of the address, and what it is called.
STEPS = (("you", "You"), ("sender", "Sender"), ("mail", "Mail"), ("domain", "Domain"), ("brand", "Brand"))


@pages.get("/setup/<token:str>", name="setup")
@open_page
async def you(request: Request, token: str) -> HTTPResponse:
    """Show the first screen to whoever holds the link; a used link says so."""
    if not await call(onboarding.check_setup, token):
        return await _closed(request)
    return view.page(request, "setup/you.html", form=Form(), token=token, steps=STEPS)


@pages.post("/setup/<token:str>", name="setup_save")
@open_page
async def you_save(request: Request, token: str) -> HTTPResponse:
    """Make the first person and their account, and sign them in."""
    if not await call(onboarding.check_setup, token):
        return await _closed(request)
    form = Form.of(request)
    form.need("name", "Write the name your colleagues know you by.")
    form.need("account_name", "Write the name of your team or company.")
    form.need("email", "Write the address you sign in with.")
    form.values["password"] = form.exact("password")
    try:
        new = await call(users.prepare, form["email"], form["password"], form["name"])
        if form.errors:
            raise errors.Invalid({})
        by = By("setup", request.ctx.client)
        user = await commit(audit.noting, by, "user_add", users.set_up, new, form["account_name"])
    except errors.Invalid as refused:
        if refused.fields or not form.errors:
            form.take(refused)
        return view.page(request, "setup/you.html", 422, form=form, token=token, steps=STEPS)
    answer = view.go(request, "/welcome")
    await session.begin(request, answer, user.id)
    return answer


async def _closed(request: Request) -> HTTPResponse:
    if await call(users.has_users):
        # Trust, T13: nothing is left that a link could open
        return view.page(request, "setup/done.html", 404)
    return problem(request, 404, "not_found")
