"""What operations are called in the document."""

from appliance.api.declare import Route


def operation(route: Route) -> str:
    """Return the operationId of an endpoint."""
    named = route.path.replace("{id}", "by_id").replace(f"{{{route.second_id}}}", f"by_{route.second_id}")
    return f"{route.method.lower()}_{named.strip('/').replace('/', '_').replace('.', '_')}"
