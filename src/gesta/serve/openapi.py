"""Describes the server in OpenAPI 3.1. The description is made from the table of paths and the types of the bodies."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

import gesta
from gesta.serve.routes import Place


def description(places: Sequence[Place], root: str) -> dict[str, Any]:
    """Return the OpenAPI document as JSON values.

    Args:
        places: the paths that are served.
        root: the path under which they are served; empty if the application is not mounted in another one.
    """
    forms = [place.body for place in places if place.body is not None]
    _, schemas = msgspec.json.schema_components(forms, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for place in places:
        paths.setdefault(place.path, {})[place.method.lower()] = _operation(place)
    error = {"type": "object", "properties": {"error": {"type": "object"}}, "required": ["error"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Gesta", "version": gesta.__version__, "summary": "Agents on the record."},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": error},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(place: Place) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", place.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    if place.path.endswith("/events"):
        parameters.append({"name": "after", "in": "query", "required": False, "schema": {"type": "integer"}})
    content: dict[str, Any] = {} if place.path.endswith("/events") else {"application/json": {}}
    if place.streams:
        content["text/event-stream"] = {}
    made: dict[str, Any] = {
        "summary": place.summary,
        "operationId": f"{place.method.lower()}{re.sub(r'[^a-z]+', '_', place.path)}".rstrip("_"),
        "parameters": parameters,
        "responses": {
            "2XX": {"description": "The answer.", "content": content},
            "default": {
                "description": "What was found, what was expected, and what to do.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if place.path == "/health":
        made["security"] = []
    if place.body is not None:
        schema = {"$ref": f"#/components/schemas/{place.body.__name__}"}
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return made
