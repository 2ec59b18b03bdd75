"""Lines of a user's program with hooks that a checker refuses: each is marked."""

import gesta
from gesta.hooks import Add, AskAgain, Asking, Calling, Change, Hooks, Refuse


def wordy(text: str, context: gesta.Context[list[str]]) -> str:
    """Return a text where a verdict is wanted."""
    context.deps.upper()  # refused: a list has no such method
    return text


def again(call: Calling, _context: gesta.Context) -> AskAgain:
    """Ask a call again, which cannot be."""
    call.arguments  # noqa: B018 # refused: no such field
    return AskAgain("again")


async def added(asking: Asking, _context: gesta.Context) -> Add:
    """Add words."""
    return Add(asking.number)  # refused: words are text


Hooks(message=wordy)  # refused: a text is not a verdict
Hooks(call=again)  # refused: a call is not asked again
Hooks(request=added, reply=wordy)  # refused: no such hook
Hooks(answer=Refuse("no"))  # refused: no function
Refuse()  # refused: without words
Change()  # refused: to what?
gesta.Agent("a", model="openai:gpt-5-mini", instructions=5)  # refused: no text
gesta.Agent("a", model="openai:gpt-5-mini", hooks=[wordy])  # refused: no hooks
