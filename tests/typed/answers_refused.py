"""Lines of a user's program that a checker refuses: each is marked."""

from dataclasses import dataclass

import gesta


@dataclass
class City:
    """What is asked for."""

    name: str


plain = gesta.Agent("plain", model="openai:gpt-5-mini")
cities = gesta.Agent("cities", model="openai:gpt-5-mini", output=City)
outcome = gesta.run_sync(plain, "Hi")
print(outcome.value + 1)  # refused: the answer is text
print(gesta.run_sync(cities, "Rome?").value.nme)  # refused: no such field
print(outcome.answer.upper())  # refused: there may be no answer
if outcome.reason == "anwsered":  # refused: no such reason
    print("never")
if outcome.what:  # refused: no such field
    print("never")
gesta.Agent("misspelt", model="openai:gpt-5-mini", outpt=City)  # refused: no such keyword
gesta.Agent("wrong", model="openai:gpt-5-mini", output=5)  # refused: no type
gesta.Agent("wrong", model="openai:gpt-5-mini", tools=[len])  # refused: no tool
gesta.Agent("wrong", model="openai:gpt-5-mini", policy={"limits": 5})  # refused: no policy
gesta.Policy(when_busy="wait")  # refused: no such choice
gesta.Policy(limits=gesta.Limits(request=5))  # refused: no such keyword
gesta.run_sync(plain, 5)  # refused: no message
gesta.run_sync(plain, "Hi", sesion="s")  # refused: no such option
gesta.run_sync(plain, "Hi", record=5)  # refused: no address
text: str = gesta.run_sync(cities, "Rome?").value  # refused: a City is not text


async def main() -> None:
    """Misuse the asynchronous door."""
    async with gesta.open("a.gesta", readonly="yes") as record:  # refused: no bool
        await record.run(plain, "Hi", sesion="s")  # refused: no such keyword
        await record.run("plain", "Hi")  # refused: no agent
        number: int = (await record.run(plain, "Hi")).value  # refused: the answer is text
        print(number)
        await record.resolve("r", "maybe", by="ann")  # refused: no such verdict
        await record.approve("r", 5)  # refused: by whom?
