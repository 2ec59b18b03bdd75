"""Sends the images and files of entries, with HTTP headers that keep a browser from running a file as a script."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gesta.log.journal import read
from gesta.serve.bodies import failed
from gesta.text.redactor import SECRETS
from gesta.views.files import files, image_type
from gesta.web.data import Pages

HEADERS = {"content-security-policy": "default-src 'none'; sandbox", "cache-control": "private, no-cache"}
"""Headers of every answer. If a person opens a file in a tab of its own, the sandbox keeps it from running scripts."""


async def file(request: Request, pages: Pages) -> Response:
    """Send one file of an entry. An image is sent with its image type; any other file is sent as a download."""
    params: dict[str, Any] = request.path_params
    run, seq, place = params["run"], params["seq"], params["place"]
    entries = await read(pages.record.store, run, seq - 1, seq)
    found = files(entries[0].content) if entries else []
    if place >= len(found) or found[place].url is not None:
        return failed(404, "NoFile", f"Entry {seq} holds no file {place}.")
    data = found[place].data
    if data is None:
        data = (await pages.record.store.get_blob(entries[0].run, found[place].blob or "")).data
    type_ = image_type(data)
    if type_ is not None:
        return Response(data, 200, HEADERS, type_)
    saved = {"content-disposition": "attachment"}
    return Response(SECRETS.bytes(data), 200, HEADERS | saved, "application/octet-stream")
