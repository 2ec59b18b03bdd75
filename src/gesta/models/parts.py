"""Images and files of a message, as text that a body can hold."""

from base64 import b64encode

from gesta.kinds import Part


def data_url(part: Part) -> str:
    """Write the bytes of a part as a URL."""
    return f"data:{part.media_type or 'application/octet-stream'};base64,{b64encode(part.data).decode()}"


def note(part: Part) -> str:
    """Name a part that cannot be sent."""
    url = None if part.url is None or part.url.startswith("data:") else part.url[:200]
    name = part.name or url or part.blob or "without a name"
    return f"[{part.type} {name!r}, {part.media_type or 'type unknown'}: it cannot be shown here]"
