"""One agent finds sentences in a lease and reads them. Another one asks it questions, and returns the lease's fields.

Prints:
    Ada Park, from 2027-05-01, 900 euros: DONE
    ToolUse     find {"words": "let to from"}
    Observation The flat in Mill Lane is let to Ada Park from 1 May 2027.
    ToolUse     find {"words": "rent month"}
    Observation The rent is 900 euros a month.
"""

import gesta
from gesta.compat.langroid.chat import ChatAgent, ChatAgentConfig
from gesta.compat.langroid.orchestration import ResultTool
from gesta.compat.langroid.task import Task
from gesta.compat.langroid.tool_message import ToolMessage

LEASE = "The flat in Mill Lane is let to Ada Park from 1 May 2027.\nThe rent is 900 euros a month."
READS = [gesta.call("find", words="let to from"), gesta.call("find", words="rent month")]
FIELDS = gesta.call("lease", tenant="Ada Park", begins="2027-05-01", rent_eur=900)


class Find(ToolMessage):
    """A tool message whose own `handle` method answers it."""

    request: str = "find"
    purpose: str = "To find the sentence of the lease that has most of the <words>."
    _tool_effect = "pure"
    words: str

    def handle(self) -> str:
        """Return the sentence that has most of the words."""
        return max(LEASE.splitlines(), key=lambda line: sum(word in line for word in self.words.split()))


class Lease(ResultTool):
    """The result of the task: the fields of the lease."""

    request: str = "lease"
    purpose: str = "To give the fields of the lease, once all are known."
    tenant: str
    begins: str
    rent_eur: int


if __name__ == "__main__":
    asks = gesta.scripted("Who is the tenant, and from when?", "What is the rent?", FIELDS)
    reads = gesta.scripted(READS[0], "DONE Ada Park, from 1 May 2027.", READS[1], "DONE 900 euros a month.")
    clerk = ChatAgent(ChatAgentConfig(name="clerk", llm=asks, use_functions_api=True), record="lease.gesta")
    reader = ChatAgent(ChatAgentConfig(name="reader", llm=reads, use_functions_api=True))
    clerk.enable_message(Lease)
    reader.enable_message(Find)
    task = Task(clerk, interactive=False)
    task.add_sub_task(Task(reader, interactive=False))
    lease = task.run("Give me the fields of the lease.", return_type=Lease)
    print(f"{lease.tenant}, from {lease.begins}, {lease.rent_eur} euros: {task.status}")
    with gesta.open_sync("lease.gesta") as record:
        answers = [entry for entry in record.read(record.find("last").run) if entry.kind == "assistant"]
        for node in record.explain(answers[-1]).nodes:
            if node.type in ("ToolUse", "Observation") and "lease" not in node.text:
                print(f"{node.type:<12}{node.text}")
