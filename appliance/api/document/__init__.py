"""The published document (OpenAPI 3.1), made from the declarations that the endpoints run on."""

from appliance.api.document.build import build as build
from appliance.api.document.build import document as document
