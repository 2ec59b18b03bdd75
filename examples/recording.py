"""A program with an agent of its own uses only the log of Gesta.

Prints:
    hello eva
    [('user', '{"channel":"chat"}'), ('key-value', None), ('assistant', None)]
"""

import sqlite3
from contextlib import closing

import gesta
from gesta.kinds import AssistantContent, UserContent


def reply(name: str) -> str:
    """Act as an agent of your own."""
    return f"hello {name}"


if __name__ == "__main__":
    with gesta.open_sync("own.gesta") as record, record.span("greeter", session="s-1", version="2") as span:
        span.log(UserContent(value="eva"), channel="chat")
        span["lucky"] = 7
        answer = reply("eva")
        span.log(AssistantContent(value=answer))
        print(answer)
    with closing(sqlite3.connect("own.gesta")) as db:
        query = "SELECT kind, annotations FROM entries WHERE kind NOT IN ('begin', 'end') ORDER BY seq"
        print(db.execute(query).fetchall())
