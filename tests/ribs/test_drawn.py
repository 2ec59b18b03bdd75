"""Of all that a model was shown, an explanation names what shows in the answer: values, names, passages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gesta
from gesta.views.drawn import SOURCES, Drawn, drawn, narrowed, words
from gesta.views.lineage import Explanation, Node

NODE: dict[str, Any] = {"run": "r", "kind": "user"}


def node(seq: int, type_: Any, text: str, *sources: int) -> Node:
    return Node(type_, f"r.{seq}", seq=seq, text=text, derived_from=tuple(f"r.{each}" for each in sources), **NODE)


def explained(answer: str, *sources: Node, question: int = 1) -> Explanation:
    last = node(99, "Conclusion", answer, *(each.seq for each in sources))
    return Explanation(last.id, (*sources, last), (f"r.{question}",))


def found(explanation: Explanation) -> list[tuple[int, str]]:
    """Return the seq of each source, with the words of it."""
    texts = {each.id: each for each in explanation.nodes}
    return [(texts[each.id].seq, texts[each.id].text[each.start : each.end]) for each in drawn(explanation)]


@pytest.mark.parametrize(
    ("told", "answer", "same"),
    [
        ('{"amount": "64.90"}', "You get 64.90 euros.", ["64.90"]),
        ('{"amount": 64.9}', "You get 64.90 euros.", ["64.9"]),
        ("Paid: 1,250 in all.", "It was 1250.", ["1,250"]),
        ("Order 1017 is late.", "I looked at order #1017.", ["Order 1017"]),
        ("Ask ann@shop.example.", "Write to ann@shop.example, please.", ["ann@shop.example"]),
        ('{"name": "Marta Duarte"}', "Thank you, Marta.", ["Marta"]),
        ('["Rock", 835]', "Rock sells best.", ["Rock"]),
        ("It takes three to five working days.", "Wait three to five days.", ["three to five"]),
        ("The warranty covers water.", "There is a warranty.", ["warranty"]),
        ("The sky is blue.", "It is what it is.", []),
        ("You are welcome to ask.", "You are there.", []),
        ("So please tell me, are you still on it?", "YOU ARE TRANSFERRED TO A PERSON. PLEASE HOLD ON.", []),
        ("Then I\u2019ll wait, If I must.", "I\u2019ll see. If not, I wait.", []),
        ('{"Item": "a lamp", "note": "the item"}', "The lamp is one Item.", []),
        ("Let me know what you need.", "If you need more, let me know.", []),
        ('["PayPal", "paypal"]', "By PayPal.", ["PayPal"]),
        ('{"paid": 50000}', 'It says {"paid": 50000}.', ['"paid": 50000']),
        ('{"paid": "by card"}', 'It says {"paid": "by card"}.', ['"paid": "by card"']),
        ('"{\\"paid\\": 50000}"', 'It says {"paid": 50000}.', ['\\"paid\\": 50000']),
        ('["USA", "TX"]', "It goes to Austin, TX.", ["TX"]),
    ],
)
def test_an_answer_draws_on_values_names_and_passages(told: str, answer: str, same: list[str]) -> None:
    assert [
        text for _, text in found(explained(answer, node(1, "Question", "?"), node(5, "Observation", told)))
    ] == same


def test_a_value_of_several_sources_is_that_of_the_first_and_of_those_in_its_own_turn() -> None:
    sources = [
        node(2, "Observation", "paid: 64.90"),
        node(4, "Observation", "again: 64.90"),
        node(6, "Question", "And now?"),
        node(8, "Observation", "refunded: 64.90"),
    ]
    assert found(explained("64.90 euros.", *sources, question=6)) == [(2, "64.90"), (8, "64.90")]


def test_a_longer_passage_comes_before_a_shorter_one() -> None:
    sources = [
        node(1, "Question", "What of days?"),
        node(2, "Observation", "five days"),
        node(3, "Observation", "three to five days"),
    ]
    assert found(explained("It takes three to five days.", *sources)) == [(3, "three to five days")]


def test_what_an_answer_was_made_of_by_others_is_no_source() -> None:
    sources = [node(1, "Question", "?"), node(2, "Analysis", "I think 4417."), node(3, "ToolUse", 'pay {"card": 4417}')]
    assert found(explained("Card 4417.", *sources)) == []


def test_an_answer_is_narrowed_to_its_sources_their_calls_and_what_people_decided() -> None:
    sources = [
        node(1, "Question", "Hello."),
        node(2, "ToolUse", "customer {}"),
        node(3, "Observation", "Marta", 2),
        node(4, "ToolUse", "orders {}"),
        node(5, "Observation", "none", 4),
        node(6, "Question", "Refund it."),
        node(7, "ToolUse", "refund {}"),
        node(8, "Approval", "by ann", 7),
        node(9, "Observation", "64.90 paid", 8),
    ]
    explanation = explained("You get 64.90, Marta.", *sources, question=6)
    kept = {int(id.partition(".")[2]) for id in narrowed(explanation, drawn(explanation))}
    assert kept == {2, 3, 6, 7, 8, 9, 99}


@given(st.text(max_size=80), st.lists(st.text(max_size=80), max_size=4))
def test_every_passage_says_the_same_in_the_source_and_in_the_answer(answer: str, told: list[str]) -> None:
    sources = [node(place, "Observation", text) for place, text in enumerate(told, 1)]
    explanation = explained(answer, *sources)
    texts = {each.id: each.text for each in explanation.nodes}
    for each in drawn(explanation):
        assert keys(texts[each.id][each.start : each.end]) == keys(answer[each.at : each.to])
        assert each.id in narrowed(explanation, drawn(explanation))


def keys(text: str) -> list[str]:
    return [word.key for word in words(text)]


def test_an_explanation_has_the_instructions_and_its_answer_draws_on_them() -> None:
    agent = gesta.Agent(
        "desk", model=gesta.scripted("We are open until 18:30."), instructions="The shop closes at 18:30 on weekdays."
    )
    with gesta.open_sync(":memory:") as record:
        outcome = record.run(agent, "When do you close?", session="s")
        answer = next(each for each in record.read(outcome.run) if each.kind == "assistant")
        explanation = record.explain(answer)
    first = explanation.nodes[0]
    assert (first.type, first.text) == ("Instructions", "The shop closes at 18:30 on weekdays.")
    assert drawn(explanation) == (Drawn(first.id, 19, 24, 18, 23),)
    assert first.type in SOURCES


def test_the_instructions_of_an_agent_that_gave_nothing_to_an_answer_are_left_out() -> None:
    def guide(name: str, said: str) -> gesta.Agent:
        return gesta.Agent(name, model=gesta.scripted(said), instructions=f"You are {name}.")

    async def program(verbs: gesta.Verbs, _text: str) -> str:
        rome = await verbs.call(guide("rome", "It costs 127 euros."), "Rome for 127 euros?", "rome")
        oslo = await verbs.call(guide("oslo", "Nobody is there."), "Oslo?", "oslo")
        verbs.sources = (rome.seq, oslo.seq)
        return "Rome: 127 euros"

    with gesta.open_sync() as record:
        outcome = record.run(gesta.Agent("boss", program=program), "Where to?")
        found = record.explain(next(each for each in record.read(outcome.run) if each.kind == "assistant"))
    shown = narrowed(found, drawn(found))
    assert [each.text for each in found.nodes if each.type == "Instructions"] == ["You are rome.", "You are oslo."]
    assert [each.text for each in found.nodes if each.type == "Instructions" and each.id in shown] == ["You are rome."]
