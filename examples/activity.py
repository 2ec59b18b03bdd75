"""Ask in SQL what an application did: messages with their answers, and tool calls with their results if there are any.

Prints:
    [('s-1', 'Which orders?', 'Only 42.'), ('s-1', 'And 43?', None)]
    [('find', 'order', 42), ('find', None, None)]
"""

import sqlite3
from contextlib import closing

import gesta
from gesta.kinds import AssistantContent, ToolCallContent, ToolResultContent, UserContent

EXCHANGES = "SELECT sid, input ->> '$.content.value', output ->> '$.content.value' FROM exchanges"
CALLS = "SELECT tool_name, paired, tool_result ->> '$.content.tool_result' FROM tool_invocations"

if __name__ == "__main__":
    with gesta.open_sync("shop.gesta") as record, record.span("shop", session="s-1") as span:
        span.log(UserContent(value="Which orders?"))
        with span.span("search") as inner:
            inner.log(ToolCallContent(tool_name="find", tool_args={"state": "open"}))
            inner.log(ToolCallContent(tool_name="find", tool_args={"state": "lost"}))
            inner.log(ToolResultContent(tool_result=42))
        span.log(AssistantContent(value="Only 42."))
        span.log(UserContent(value="And 43?"))
    with closing(sqlite3.connect("shop.gesta")) as db:
        print(db.execute(EXCHANGES).fetchall())
        print(db.execute(CALLS).fetchall())
