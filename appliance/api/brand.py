"""The brand over the API."""

from appliance import brand
from appliance.account import audit
from appliance.api import brand_shapes, shaping
from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import checked
from appliance.brand import BrandWrite
from appliance.db.work import call, commit

ROUTES = Routes()


@ROUTES.add("GET", "/brand", scope="account:read", returns=brand_shapes.Brand)
async def show(request: Call) -> Answer:
    """Get the brand identity."""
    return Answer(shaping.brand(await call(brand.get, request.account_id)))


@ROUTES.add(
    "PUT", "/brand", scope="account:write", reads=BrandWrite, inside=checked(brand.check), returns=brand_shapes.Brand
)
async def update(request: Call) -> Answer:
    """Update the brand identity; absent fields stay."""
    return Answer(
        shaping.brand(
            await commit(audit.noting, request.by, "brand_update", brand.update, request.account_id, request.body)
        )
    )
