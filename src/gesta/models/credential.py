"""Gets the key for each request to a provider.

A user may pass a function instead of a key. The function is called for each request, so that no expired key is sent.
"""

import inspect
from collections.abc import Awaitable, Callable

import anyio.to_thread

from gesta.errors import ModelFault, message_of
from gesta.text.redactor import SECRETS

Giving = Callable[[], str | Awaitable[str]]
"""A function that returns a key. If it is not async, it is called in a thread, because it may wait for a server."""
Credential = str | Giving


async def given(function: Giving, model: str) -> str:
    """Call a function that returns a key, and return the key without white space around it.

    Args:
        model: name of the model, for the error.

    Raises:
        ModelFault: type `credential`. If the function raised, the request may be tried again; if the function returned
            something other than a str, the request must not be tried again.
    """
    try:
        found = function() if _is_async(function) else await anyio.to_thread.run_sync(function)
        key = await found if inspect.isawaitable(found) else found
    except Exception as failure:
        said = f"{type(failure).__name__}: {message_of(failure)}"
        found = f"{model}: the function that gives the key raised {said}."
        raise ModelFault("credential", SECRETS.message(found), retry=True) from failure
    if not isinstance(key, str):
        found = f"{model}: the function that gives the key gave a {type(key).__name__}, expected a str."
        raise ModelFault("credential", found)
    return key.strip()


def _is_async(function: Giving) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - of an object that can be called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
