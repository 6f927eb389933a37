"""Signing in and out."""

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import signing_in, users
from appliance.storage.models import User
from appliance.storage.work import call
from ui import held, session, view
from ui.forms import Form, local_path
from ui.guard import open_page
from ui.session import Pages

pages = Pages("ui_login")


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
    try:
        user = await _who(request, form)
    except signing_in.CodeNeeded as needed:
        form.values["pass"] = needed.pass_
        return await _ask(request, form, where, 200)
    if user is None:
        return await _ask(request, form, where, 422)
    if form["again"]:
        # The page is there still, under the question
        answer = HTTPResponse("", 200, {"hx-retarget": "#dialog"}, "text/html; charset=utf-8")
    elif typed := held.fields(form["typed"]):
        answer = view.whole(
            request, "login/kept.html", goes=local_path(form["path"]), fields=typed, next=where
        )  # fmt: skip
    else:
        answer = view.go(request, where)
    await session.begin(request, answer, user.id)
    return answer


async def _who(request: Request, form: Form) -> User | None:
    """Return who signs in, or None with what is wrong in the form; raises CodeNeeded, or TooMany."""
    try:
        if not form["pass"]:
            return await signing_in.enter(form["email"], form.exact("password"), None, request.ctx.client)
        user = await signing_in.enter_code(form["pass"], form["otp"], request.ctx.client)
    except signing_in.WrongSignIn:
        if form["pass"]:
            form.wrong("otp", "This code is not right, or was used before. Wait for the next one.")
        else:
            form.wrong("base", "Address and password do not belong together. Try again.")
        return None
    if user is None:
        form.values["pass"] = ""
        form.wrong("base", "That took too long. Sign in again.")
    return user


@pages.post("/logout", name="logout")
@open_page
async def leave(request: Request) -> HTTPResponse:
    """End the session of this browser."""
    answer = view.go(request, "/login?bye=1")
    await session.end(request, answer)
    return answer


async def _ask(request: Request, form: Form, where: str, status: int) -> HTTPResponse:
    """Ask on, where the person is: on the page, or over the one that they were working on."""
    if form["again"]:
        return view.over(request, "login/again.html", status, form=form)
    return await _page(request, form, where, status)


async def _page(request: Request, form: Form, where: str, status: int) -> HTTPResponse:
    return view.page(
        request, "login/login.html", status, form=form, next=where,
        bye=bool(request.args.get("bye")), chosen=bool(request.args.get("chosen")),
        is_new=not await call(users.has_users),
    )  # fmt: skip
