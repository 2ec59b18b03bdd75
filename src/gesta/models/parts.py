"""Images and files of a message, as text for a body."""

from base64 import b64encode

from gesta.kinds import Part
from gesta.message import part_text


def data_url(part: Part) -> str:
    """Return the bytes of a part as a data URL."""
    return f"data:{part.media_type or 'application/octet-stream'};base64,{b64encode(part.data).decode()}"


def note(part: Part) -> str:
    """Return a note that names a part which cannot be sent."""
    return part_text(part, ": it cannot be shown here")
