"""The JSON API below `/v1/my`: routes, request and response Structs, and the OpenAPI document."""
