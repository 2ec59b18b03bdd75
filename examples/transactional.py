"""A tool whose database table is in the record's file. Its changes and its result are committed together or not at all.

Prints:
    room 7 is booked
    ConstraintError: UNIQUE constraint failed: bookings.room
    Room 7 is yours; it was free only once.
    [(7,)]
"""

import gesta


@gesta.tool(effect="transactional")
def book(room: int, context: gesta.Context) -> str:
    """Book a room."""
    context.sql("CREATE TABLE IF NOT EXISTS bookings(room INTEGER PRIMARY KEY)")
    context.sql("INSERT INTO bookings VALUES(?)", (room,))
    return f"room {room} is booked"


model = gesta.scripted(
    gesta.call("book", room=7), gesta.call("book", room=7), "Room 7 is yours; it was free only once."
)
agent = gesta.Agent("desk", model=model, tools=[book])

if __name__ == "__main__":
    with gesta.open_sync("hotel.gesta") as record:
        outcome = record.run(agent, "Room 7, twice, please.", session="ann")
        for entry in record.read(outcome.run):
            if isinstance(entry.content, gesta.kinds.ToolResultContent):
                print(entry.content.tool_result)
        print(outcome.answer)
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect("hotel.gesta")) as file:  # any SQLite tool reads the same file
        print(file.execute("SELECT room FROM bookings").fetchall())
