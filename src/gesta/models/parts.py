"""Writes the images and files of a message as text for the body of a request."""

from base64 import b64encode

from gesta.kinds import Part
from gesta.message import part_text


def data_url(part: Part) -> str:
    """Return a data URL that holds the bytes of a part in Base64."""
    return f"data:{part.media_type or 'application/octet-stream'};base64,{b64encode(part.data).decode()}"


def note(part: Part) -> str:
    """Return a text to send in place of an image or file that the provider cannot read.

    For example, the text is `[image 'a.bmp', image/bmp: it cannot be shown here]`.
    """
    return part_text(part, ": it cannot be shown here")
