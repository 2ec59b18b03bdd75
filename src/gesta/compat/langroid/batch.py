"""A batch runs a copy of a task or of an agent for each of many items. Results are in the order of the items.

Each copy records its work in a run of its own, a stored sequence of entries. The copy's work on one message is a turn
of the run, and a session is a group of runs. A batch with a name uses a session of that name, and each item's turn has
a key made from the name and the item's index. If the process dies, call the batch again with the same name: stored
results are read, interrupted runs are continued, and no finished tool call runs again.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from math import inf
from typing import Any

import anyio
from anyio import to_thread
from msgspec import Struct

from gesta.compat.langroid.chat import ChatAgent
from gesta.compat.langroid.chat_document import ChatDocument, Entity, StatusCode
from gesta.compat.langroid.home import Home
from gesta.compat.langroid.task import Task
from gesta.policy import Spelled
from gesta.record.record import Record

Map = Callable[[Any], Any]
GenTask = Callable[[int], Task]
DoTask = Callable[[Any, int], Awaitable[Any]]


class ExceptionHandling(StrEnum):
    """The ways in which a batch can treat an exception of an item."""

    RAISE = "raise"
    """The exception ends the batch."""
    RETURN_NONE = "return_none"
    RETURN_EXCEPTION = "return_exception"
    """The exception becomes the result of the item."""


def same(result: Any) -> Any:
    """Return a result unchanged. The default of `output_map`."""
    return result


class Batch(Struct, frozen=True, kw_only=True, metaclass=Spelled):
    """The settings of a batch, and the methods that run it in an event loop: `await Batch(...).tasks(...)`."""

    input_map: Map = str
    """Turns an item into the message for its task or agent."""
    output_map: Map = same
    """Turns the result of a task into the result of the item. It is not called for an item that failed."""
    stop_on_first_result: bool = False
    """Whether the first result that is not `None` ends the batch. All items of a part then run at the same time."""
    sequential: bool = True
    """Whether the items run one after the other."""
    batch_size: int | None = None
    """Number of items in a part. The next part begins when the part before it has ended. `None` for one part."""
    turns: int = -1
    """Largest number of steps of each task; -1 for no limit."""
    handle_exceptions: ExceptionHandling | bool = ExceptionHandling.RAISE
    """What to do with an exception. False means `RAISE`, True means `RETURN_NONE`."""
    max_cost: float = 0.0
    """Limit in US dollars for each task; 0 for no limit."""
    max_tokens: int = 0
    """Limit of tokens for each task; 0 for no limit."""
    max_concurrency: int | None = None
    """Largest number of items that run at the same time; `None` for no limit. Unused if `sequential` is true."""
    name: str = ""
    """Name of the batch, under which it can be continued. The record must then outlive the process."""

    async def tasks(self, gen_task: GenTask, items: Sequence[Any]) -> list[Any]:
        """Run a task for each item.

        Args:
            gen_task: returns the task for the item at an index, counted from 0; for example `task.clone`.
            items: values that `input_map` accepts.

        Returns:
            The results in the order of the items; `None` for an item without a result.

        Raises:
            GestaError: a task failed, or waits for a person or an event, and `handle_exceptions` is `RAISE`.
        """
        copies = Copies(gen_task, self)
        try:
            return await self.each([self.input_map(item) for item in items], copies.run, copies)
        finally:
            await copies.rest()

    async def agents(self, agent: ChatAgent, method: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        """Call an asynchronous method of an agent for each item, each time on a copy of the agent.

        The method's argument is a `ChatDocument`, a message made from the item.

        Raises:
            ValueError: the method is not asynchronous.
            GestaError: a call failed, or waits for a person or an event, and `handle_exceptions` is `RAISE`.
        """
        name = method.__name__
        if not inspect.iscoroutinefunction(method):
            raise ValueError(f"The method {name!r} is not asynchronous; expected one such as `llm_response_async`.")

        def one(i: int) -> Task:
            task = OneResponse(agent.clone(i))
            task.method = name
            return task

        return await self.tasks(one, items)

    async def each(self, inputs: Sequence[Any], do: DoTask, copies: "Copies | None" = None) -> list[Any]:
        """Return the result of `await do(input, index)` for each input, converted by `output_map`; see `tasks`.

        Args:
            copies: the tasks that `do` runs, to find stored results and to cancel tasks whose results are no longer
                needed; `None` if `do` runs no tasks.
        """
        results: list[Any] = []
        size = self.batch_size or len(inputs) or 1
        for start in range(0, len(inputs), size):
            part = range(start, min(start + size, len(inputs)))
            won = self.stop_on_first_result and any(each is not None for each in results)
            results += [None] * len(part) if won else await self._part(part, inputs, do, copies)
        return results

    async def _part(self, part: range, inputs: Sequence[Any], do: DoTask, copies: "Copies | None") -> list[Any]:
        results, failed = dict[int, Any](), list[Exception]()
        limiter = anyio.CapacityLimiter(self.max_concurrency or inf)

        async def one(i: int) -> None:
            try:
                async with limiter:
                    results[i] = self.output_map(await do(inputs[i], i))
            except Exception as error:  # noqa: BLE001 - it is raised or returned, as `handle_exceptions` says
                failed.extend([error] * self._raises)
                results[i] = error if self.handle_exceptions == ExceptionHandling.RETURN_EXCEPTION else None
            if failed or (self.stop_on_first_result and results[i] is not None):
                scope.cancel()

        first = part if self.sequential else []
        if self.stop_on_first_result:
            first = [i for i in part if copies is not None and await copies.ended(i)]
        with anyio.CancelScope() as scope:
            for i in first:
                await one(i)
                await anyio.lowlevel.checkpoint_if_cancelled()
            async with anyio.create_task_group() as group:
                for i in part:
                    if i not in results:
                        group.start_soon(one, i)
        if failed:
            raise failed[0]
        for i in part:
            if copies is not None and i not in results:
                await copies.cancel(i)
        return [results.get(i) for i in part]

    @property
    def _raises(self) -> bool:
        if isinstance(self.handle_exceptions, bool):
            return not self.handle_exceptions
        return self.handle_exceptions == ExceptionHandling.RAISE


class Copies:
    """The tasks of a batch, by the index of their item. Each task is made when it is first needed."""

    def __init__(self, gen_task: GenTask, batch: Batch) -> None:
        self._gen_task, self._batch, self._made = gen_task, batch, dict[int, Task]()

    def __getitem__(self, i: int) -> Task:
        if i not in self._made:
            self._made[i] = self._gen_task(i)
        return self._made[i]

    def _key(self, i: int) -> str | None:
        return f"{self._batch.name}-{i}" if self._batch.name else None

    async def run(self, given: Any, i: int) -> Any:
        """Run the task of item number `i` on its input `given`, or continue the interrupted turn. Return the result."""
        batch = self._batch
        limits = batch.turns, None, batch.max_cost, batch.max_tokens
        return await self[i].run_async(given, *limits, batch.name, key=self._key(i))

    async def _place(self, i: int) -> tuple[Record, str]:
        home = self[i].chat.home
        return home.record, await home.record.turns.run_of(self._batch.name or home.session, self[i].name)

    async def ended(self, i: int) -> bool:
        """Return whether the result of an item is already stored, for example by an earlier run of the batch."""
        record, run = await self._place(i)
        turn = (await record.state(run)).turns.get(self._key(i) or "")
        return turn is not None and turn.reason is not None

    async def cancel(self, i: int) -> None:
        """Cancel the open turn of an item whose result is no longer needed."""
        record, run = await self._place(i)
        if (await record.state(run)).open:
            await record.cancel(run, by="batch")

    async def rest(self) -> None:
        """Close the tasks' connections to model providers, because they cannot be used in another event loop."""
        for home in {task.chat.home for task in self._made.values()}:
            await home.rest()


class OneResponse(Task, eq=False):
    """A task with a single step, which calls one method of its agent."""

    method: str = "llm_response_async"

    async def step_async(self) -> None:
        """Call the agent's method. The document that it returns becomes the result of the task."""
        self.steps += 1
        respond = getattr(self.chat, self.method)
        self.chat.entity_responders_async = lambda: [(Entity.LLM, respond)]  # type: ignore[method-assign]
        self.pending_message = await self._response(Entity.LLM)

    def done(self, result: Any = None, r: Any = None) -> tuple[bool, StatusCode]:
        """Return `True` and the status, because the task is done after its one step. The arguments are ignored."""
        del result, r
        return True, StatusCode.STALLED if self.pending_message is None else StatusCode.DONE

    def result(self, status: StatusCode | None = None) -> ChatDocument | None:
        """Return the answer of the called method; `None` if there is none. `status` is ignored."""
        del status
        return self.pending_message

    def _interpret(self, doc: ChatDocument) -> None:
        """Do nothing, so that a steering message (such as `DoneTool`) is returned unchanged."""


def run_batch_task_gen(
    gen_task: GenTask,
    items: Sequence[Any],
    input_map: Map = str,
    output_map: Map = same,
    stop_on_first_result: bool = False,  # noqa: FBT001, FBT002 - the names that users know, here and below
    sequential: bool = True,  # noqa: FBT001, FBT002
    batch_size: int | None = None,
    turns: int = -1,
    message: str | None = None,
    handle_exceptions: ExceptionHandling | bool = ExceptionHandling.RAISE,  # noqa: FBT001
    max_cost: float = 0.0,
    max_tokens: int = 0,
    *,
    max_concurrency: int | None = None,
    name: str = "",
) -> list[Any]:
    """Run a task made by `gen_task` for each item; see `Batch.tasks`. `message` is ignored: nothing is printed."""
    del message
    batch = Batch(
        input_map=input_map,
        output_map=output_map,
        stop_on_first_result=stop_on_first_result,
        sequential=sequential,
        batch_size=batch_size,
        turns=turns,
        handle_exceptions=handle_exceptions,
        max_cost=max_cost,
        max_tokens=max_tokens,
        max_concurrency=max_concurrency,
        name=name,
    )
    return Home().wait_for(lambda: batch.tasks(gen_task, items), "Batch(...).tasks")


def run_batch_tasks(
    task: Task,
    items: Sequence[Any],
    input_map: Map = str,
    output_map: Map = same,
    stop_on_first_result: bool = False,  # noqa: FBT001, FBT002
    sequential: bool = True,  # noqa: FBT001, FBT002
    batch_size: int | None = None,
    turns: int = -1,
    max_cost: float = 0.0,
    max_tokens: int = 0,
    *,
    max_concurrency: int | None = None,
    name: str = "",
) -> list[Any]:
    """Run a copy of a task for each item; see `Batch.tasks`."""
    return run_batch_task_gen(
        task.clone,
        items,
        input_map,
        output_map,
        stop_on_first_result,
        sequential,
        batch_size,
        turns,
        max_cost=max_cost,
        max_tokens=max_tokens,
        max_concurrency=max_concurrency,
        name=name,
    )


def run_batch_agent_method(
    agent: ChatAgent,
    method: Callable[..., Any],
    items: Sequence[Any],
    input_map: Map = str,
    output_map: Map = same,
    sequential: bool = True,  # noqa: FBT001, FBT002
    stop_on_first_result: bool = False,  # noqa: FBT001, FBT002
    handle_exceptions: ExceptionHandling | bool = ExceptionHandling.RAISE,  # noqa: FBT001
    batch_size: int | None = None,
    *,
    name: str = "",
) -> list[Any]:
    """Call an asynchronous method for each item, each time on a copy of the agent; see `Batch.agents`."""
    batch = Batch(
        input_map=input_map,
        output_map=output_map,
        sequential=sequential,
        stop_on_first_result=stop_on_first_result,
        handle_exceptions=handle_exceptions,
        batch_size=batch_size,
        name=name,
    )
    return Home().wait_for(lambda: batch.agents(agent, method, items), "Batch(...).agents")


def llm_response_batch(
    agent: ChatAgent,
    items: Sequence[Any],
    input_map: Map = str,
    output_map: Map = same,
    sequential: bool = True,  # noqa: FBT001, FBT002
    stop_on_first_result: bool = False,  # noqa: FBT001, FBT002
    batch_size: int | None = None,
    *,
    name: str = "",
) -> list[Any]:
    """Return the answers of an agent's model to the items; see `Batch.agents`."""
    stop, responds = stop_on_first_result, agent.llm_response_async
    return run_batch_agent_method(
        agent, responds, items, input_map, output_map, sequential, stop, batch_size=batch_size, name=name
    )


def agent_response_batch(
    agent: ChatAgent,
    items: Sequence[Any],
    input_map: Map = str,
    output_map: Map = same,
    sequential: bool = True,  # noqa: FBT001, FBT002
    stop_on_first_result: bool = False,  # noqa: FBT001, FBT002
    batch_size: int | None = None,
    *,
    name: str = "",
) -> list[Any]:
    """Return the answers of an agent's own methods, which handle its tools, to the items; see `Batch.agents`."""
    stop, responds = stop_on_first_result, agent.agent_response_async
    return run_batch_agent_method(
        agent, responds, items, input_map, output_map, sequential, stop, batch_size=batch_size, name=name
    )


def run_batched_tasks(
    inputs: Sequence[Any],
    do_task: DoTask,
    batch_size: int | None,
    stop_on_first_result: bool,  # noqa: FBT001
    sequential: bool,  # noqa: FBT001
    handle_exceptions: ExceptionHandling | bool,  # noqa: FBT001
    output_map: Map,
    message_template: str = "",
    message: str | None = None,
) -> list[Any]:
    """Return the result of `do_task(input, index)` for each input. Nothing is recorded and nothing is printed."""
    del message_template, message
    batch = Batch(
        batch_size=batch_size,
        stop_on_first_result=stop_on_first_result,
        sequential=sequential,
        handle_exceptions=handle_exceptions,
        output_map=output_map,
    )
    return Home().wait_for(lambda: batch.each(inputs, do_task), "Batch(...).each")


def run_batch_function(
    function: Map,
    items: Sequence[Any],
    sequential: bool = True,  # noqa: FBT001, FBT002
    batch_size: int | None = None,
) -> list[Any]:
    """Return `function(item)` for each item. The calls run in threads unless `sequential`. Nothing is recorded."""
    if sequential:
        return [function(item) for item in items]

    async def call(item: Any, i: int) -> Any:
        del i
        return await to_thread.run_sync(function, item)

    return run_batched_tasks(items, call, batch_size, False, False, ExceptionHandling.RAISE, same)  # noqa: FBT003
