"""The names of Langroid's module `langroid.agent.batch`, at the same path after `gesta.compat`."""

from gesta.compat.langroid.batch import (
    ExceptionHandling,
    agent_response_batch,
    llm_response_batch,
    run_batch_agent_method,
    run_batch_function,
    run_batch_task_gen,
    run_batch_tasks,
    run_batched_tasks,
)

__all__ = [
    "ExceptionHandling",
    "agent_response_batch",
    "llm_response_batch",
    "run_batch_agent_method",
    "run_batch_function",
    "run_batch_task_gen",
    "run_batch_tasks",
    "run_batched_tasks",
]
