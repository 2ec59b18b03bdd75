"""Images and files of a message, as text that a body can hold."""

from base64 import b64encode

from gesta.kinds import Part
from gesta.message import part_text


def data_url(part: Part) -> str:
    """Write the bytes of a part as a URL."""
    return f"data:{part.media_type or 'application/octet-stream'};base64,{b64encode(part.data).decode()}"


def note(part: Part) -> str:
    """Name a part that cannot be sent."""
    return part_text(part, ": it cannot be shown here")
