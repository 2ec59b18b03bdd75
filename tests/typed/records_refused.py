"""Lines of a user's program that a checker refuses: each is marked."""

import gesta
from gesta.kinds import UserContent

agent = gesta.Agent("desk", model="openai:gpt-5-mini")

with gesta.open_sync(5) as record:  # refused: no address
    record.run(agent, "Hi", sesion="s")  # refused: no such keyword
    record.run(agent, "Hi", settings="hot")  # refused: no dict
    record.approve("r", "first", by="ann")  # refused: a call has a number
    record.answer("r", "yes")  # refused: by whom?
    record.cancle("r", by="ann")  # refused: no such method
    record.resolve("r", "perhaps", by="ann")  # refused: no such verdict
    with record.span("app", session="s", skip=5) as span:  # refused: no kinds
        span.log("hi")  # refused: no content
        span.log(UserContent(vale="hi"))  # refused: no such field
    with record.span("app"):  # refused: in which session?
        pass
with gesta.open_sync("a.gesta", durability="fast"):  # refused: no such durability
    pass
with gesta.open_sync("a.gesta", read_only=True):  # refused: no such option
    pass
for event in record.stream(agent, "Hi"):
    print(event.kind)  # refused: no such field
    if event.type == "reply":  # refused: no such type of event
        pass
