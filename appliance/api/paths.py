"""Paths outside of the declared endpoints: where people sign in and out, and where forms are submitted."""

LOGIN = ("/v1/login", "/v1/my/login")
LOGOUT = ("/v1/logout", "/v1/my/logout")
SUBMIT = "/v1/public/forms/{public_key}"
