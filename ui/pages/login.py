"""Signing in and out."""

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance.account import attempts, users
from appliance.db.work import call
from ui import session, view
from ui.forms import Form, local_path
from ui.guard import open_page

pages = Blueprint("ui_login")


@pages.get("/login", name="login")
@open_page
async def show(request: Request) -> HTTPResponse:
    """Ask for address and password; who is signed in already goes on."""
    where = local_path(request.args.get("next"))
    if await session.visit(request):
        return view.go(request, where)
    return await _page(request, Form(), where, 200)


@pages.post("/login", name="login_save")
@open_page
async def save(request: Request) -> HTTPResponse:
    """Sign in and go where the person wanted to; a wrong address and a wrong password read alike."""
    form = Form.of(request)
    where = local_path(form["next"])
    names = (f"email:{form['email'].casefold()}", f"client:{request.ctx.client}")
    attempts.check(*names)
    user = await call(users.verify, form["email"], form.exact("password"))
    if user is None:
        attempts.failed(*names)
        form.wrong("base", "Address and password do not belong together. Try again.")
        return await _page(request, form, where, 422)
    attempts.succeeded(names[0])
    answer = view.go(request, where)
    await session.begin(request, answer, user.id)
    return answer


@pages.post("/logout", name="logout")
@open_page
async def leave(request: Request) -> HTTPResponse:
    """End the session of this browser."""
    answer = view.go(request, "/login?bye=1")
    await session.end(request, answer)
    return answer


async def _page(request: Request, form: Form, where: str, status: int) -> HTTPResponse:
    return view.page(
        request, "login/login.html", status, form=form, next=where,
        bye=bool(request.args.get("bye")), is_new=not await call(users.has_users),
    )  # fmt: skip
