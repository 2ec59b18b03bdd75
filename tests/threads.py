"""Threads of tools that a test holds and lets go: it waits for what they do, and for no time."""

import threading

import anyio.to_thread

PATIENCE_S = 60
"""How long a thread is held at most, so that a test that fails leaves none."""


class Held:
    """So many threads, held where they call `here`, until the test lets them go."""

    def __init__(self, count: int = 1) -> None:
        self._count = count
        self._threads: list[threading.Thread] = []
        self._all, self._go = threading.Event(), threading.Event()

    def here(self) -> None:
        """Hold the thread that calls this."""
        self._threads.append(threading.current_thread())
        if len(self._threads) == self._count:
            self._all.set()
        assert self._go.wait(PATIENCE_S)

    async def all_here(self) -> None:
        """Wait until all are held."""
        assert await anyio.to_thread.run_sync(self._all.wait, PATIENCE_S)

    async def let_go(self) -> None:
        """Release them, and wait until they have ended; a result that nobody waited for is a letter by then."""
        await self.all_here()
        self._go.set()
        for thread in self._threads:
            await anyio.to_thread.run_sync(thread.join, PATIENCE_S)
            assert not thread.is_alive()
