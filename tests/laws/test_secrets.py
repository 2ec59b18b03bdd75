"""No secret of at least eight characters is in anything that is written, said or raised, in no form of it."""

import base64
import html
import io
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape

import anyio
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.conftest import COSTLY, sampled
from tests.costs import LINEAR, growth

import gesta
from gesta.bridges import jsonl
from gesta.cli.talk import Screen
from gesta.codec.blobs import Blobs
from gesta.codec.rows import decode_content, encode_content, to_row
from gesta.compat.agent_catalog.export import export_run as activity_log
from gesta.entry import GENESIS, Entry, utc_time
from gesta.errors import AgentError, GestaError, message_of
from gesta.kinds import (
    ApprovalContent,
    BeginContent,
    Content,
    DecisionContent,
    Error,
    FaultContent,
    KeyValueContent,
    Kind,
    ToolCallContent,
    ToolResultContent,
    UserContent,
)
from gesta.text.redactor import LONG_TEXT, SECRETS, Flow, Secrets

OURS = " ".join([*Kind, *(name for kind in get_args(Content) for name in kind.__struct_fields__)])
"""Words of Gesta's own, which stand in each record."""
KEY = "sk-AbC+d/9876543210zyxw"
KEYS = st.from_regex(r"sk-[A-Za-z0-9_+/-]{8,40}={0,2}", fullmatch=True)
ODD = st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=30)
SECRET = (KEYS | ODD | st.text(st.sampled_from('ab*."\\<>& é\n%'), min_size=8, max_size=20)).filter(
    lambda value: value == value.strip() and len(value) >= 8 and value not in OURS
)
FORMS: tuple[Callable[[str], str], ...] = (
    str,
    lambda key: json.dumps(key)[1:-1],
    lambda key: json.dumps(key, ensure_ascii=False)[1:-1],
    lambda key: json.dumps(json.dumps(key))[3:-3],
    quote,
    quote_plus,
    lambda key: quote(key, safe=""),
    html.escape,
    lambda key: base64.b64encode(key.encode()).decode(),
    lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    lambda key: base64.b64encode(f"ab{key}z".encode()).decode(),
    lambda key: escape(key, {"'": "&apos;", '"': "&quot;"}),
)
MASKED: tuple[Callable[[str], str], ...] = (
    lambda key: f"{key[:3]}...{key[-4:]}",
    lambda key: f"{key[:4]}**…**{key[-2:]}",
    lambda key: f"{key[:4]}{'*' * 20}{key[-4:]}",
    lambda key: f"{key[:2]}••••{key[-3:]}",
    lambda key: f"{'*' * 12}{key[-4:]}",
    lambda key: f"{key[:4]}{'*' * 12}",
)
TEXT = st.text(max_size=20)


@st.composite
def said(draw: st.DrawFn) -> tuple[str, str, str]:
    """A secret, a form of it, and a text that holds that form."""
    key = draw(SECRET)
    whole = any(sign in "*•●█·∙#.…\\" for sign in key)  # masked, nobody could tell it from another text
    form = draw(st.sampled_from(FORMS if whole else FORMS + MASKED))(key)
    return key, form, draw(TEXT) + form + draw(TEXT)


def contents(text: str) -> list[Content]:
    return [
        UserContent(value=text, user_id=text),
        ToolCallContent(tool_name=text, tool_args={text: [text, {"x": (text, {text})}]}, meta={"raw": text}),
        ToolResultContent(call=1, tool_result={"a": [text.encode("utf-8", "surrogatepass"), text]}, status="success"),
        FaultContent(of=1, error=Error(type=text, message=text, traceback=text)),
        BeginContent(name=text, annotations={text: text}, state=text),
        KeyValueContent(key=text, value=Exception(text)),
        DecisionContent(choice=text, candidates=[text, text]),
        ApprovalContent(of=1, verdict="denied", by=text, reason=text),
        UserContent(value=text * 5000),
        UserContent(value=text, extra={"deep": json.loads("[" * 70 + json.dumps(text) + "]" * 70)}),
    ]


def texts(value: Any) -> list[str]:
    """All that is read of what was stored, marks taken off."""
    match value:
        case str():
            return [value]
        case dict():
            found = [text for pair in value.items() for each in pair for text in texts(each)]
            marked = [value[mark] for mark in ("$text", "$bytes") if isinstance(value.get(mark), str)]
            return found + [base64.b64decode(each).decode("utf-8", "surrogatepass") for each in marked]
        case list():
            return [text for each in value for text in texts(each)]
        case _:
            return []


@given(said())
@example(("********", "********", "x********y"))
@example(("<secret key>", "<secret key>", "<secret key>"))
@example(("secret key", "secret key", "secret key"))
def test_no_form_of_a_secret_is_in_any_field_of_any_entry(case: tuple[str, str, str]) -> None:
    key, form, text = case
    SECRETS.forget()
    SECRETS.add("key", key)
    for content in contents(text):
        blobs = Blobs()
        draft = Entry(
            run="r",
            seq=1,
            at=utc_time("2026-01-01T00:00:00.000000Z"),
            span=1,
            content=content,
            annotations={text: text},
        )
        entry, row = to_row(draft, GENESIS, bytes(16), blobs.keep)
        stored = [row.content, row.annotations or "", encode_content(content)]
        large = [data.decode("utf-8", "surrogatepass") for _, _, data in blobs.take()]
        found = stored + large + [each for one in stored for each in texts(json.loads(one))] + [repr(entry.content)]
        assert not [one for one in found if form in one or key in one]


@given(said(), st.lists(st.integers(0, 80), max_size=8))
@example(("sk-0123456789", "sk-0123456789", "a sk-0123456789 b"), list(range(20)))
@example(("sk-0123456789", "sk-0****89", "a sk-0****89 b"), list(range(20)))
@example(("0\x1f000000", "0\\\\u001f000000", "0\\\\u001f000000"), [3])
@example(("<0000000", "&lt;0000000", "&lt;0000000"), [1])
def test_however_a_text_is_cut_no_form_of_a_secret_is_heard_or_printed(
    case: tuple[str, str, str], cuts: list[int]
) -> None:
    key, form, text = case
    SECRETS.forget()
    SECRETS.add("key", key)
    flow, stream = Flow(SECRETS), io.StringIO()
    screen, heard = Screen(stream), ""
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(places):
        heard += flow.feed(text[start:end])
        screen.write(text[start:end])
    heard += flow.feed("", last=True)
    screen.end()
    for said_ in (heard, stream.getvalue()):
        assert key not in said_
        assert form not in said_


@given(said())
def test_no_form_of_a_secret_is_in_an_error(case: tuple[str, str, str]) -> None:
    key, form, text = case
    SECRETS.forget()
    SECRETS.add("key", key)
    for error in (GestaError(text), gesta.ModelFault(text, text), gesta.InDoubt(text)):
        error.add_note(text)
        for one in (str(error), message_of(error), *map(str, error.args), *error.__notes__):
            assert form not in one
            assert key not in one


@given(st.text(), st.lists(st.integers(0, 60)))
def test_a_text_without_a_secret_stays_as_it_is(text: str, cuts: list[int]) -> None:
    secrets = Secrets()
    secrets.add("key", "sk-0123456789-é/x")
    assume("sk" not in text and "*" not in text and "…" not in text)
    assert secrets.text(text) == text
    flow, heard = Flow(secrets), ""
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(places):
        heard += flow.feed(text[start:end])
    assert heard + flow.feed("", last=True) == text


@COSTLY
@given(said())
def test_no_form_of_a_secret_is_in_a_record_or_an_export(case: tuple[str, str, str]) -> None:
    key, form, text = case
    SECRETS.forget()
    SECRETS.add("key", key)
    found = list[str]()

    @gesta.tool(effect="pure")
    def look(at: int) -> Any:
        """Look."""
        if at:
            raise ValueError(text)
        return {"said": text}

    script = gesta.scripted([text, gesta.call("look", at=0)], gesta.call("look", at=1), text)
    agent = gesta.Agent("a", script, tools=[look], instructions=text)

    async def main() -> None:
        async with gesta.open() as record:
            stream = record.stream(agent, text, session="s", key="k")
            found.extend([repr(event.content) async for event in stream])
            again = await record.run(agent, text, session="s", key="k")
            assert again.reason == "answered"
            found.append(repr(again.answer))
            for entry in await record.read(again.run):
                found.append(encode_content(entry.content))
            assert [entry.kind for entry in await record.read(again.run)].count(gesta.kinds.Kind.RequestHeader) == 1
            found.extend([line async for line in jsonl.export_run(record, again.run)])
            found.extend([line async for line in activity_log(record, again.run)])

    anyio.run(main)
    assert not [one for one in found if form in one or key in one]


@pytest.mark.parametrize("value", ["EMPTY", "ollama", "1234567", "x " * 3])
def test_a_short_key_blanks_out_no_words(value: str) -> None:
    SECRETS.forget()
    SECRETS.add("key", value)
    assert SECRETS.search is None
    with pytest.raises(AgentError, match=r"The secret 'pin' has \d characters, expected at least 8: a shorter text"):
        gesta.secret("pin", value)


@pytest.mark.parametrize("form", [f"<a>{KEY} &eacute;&apos;</a>", f"<a>{KEY} é&apos;</a>"])
def test_a_secret_is_found_where_html_or_xml_names_its_signs_also_in_pieces(form: str) -> None:
    gesta.secret("crm", f"{KEY} é'")
    flow = Flow(SECRETS)
    assert SECRETS.text(form) == "<a><secret crm></a>"
    assert "".join(map(flow.feed, form)) + flow.feed("", last=True) == "<a><secret crm></a>"


def test_a_declared_secret_is_returned_and_known() -> None:
    assert gesta.secret("crm", "tok-0123456789") == "tok-0123456789"
    assert SECRETS.text("by tok-0123456789.") == "by <secret crm>."


def test_of_the_environment_only_secrets_are_learned() -> None:
    SECRETS.add_environment(
        {
            "CRM_TOKEN": "tok-0123456789",
            "DB_PASSWORD": "hunter2-hunter2",
            "MAX_TOKENS": "tokens-100000",
            "USE_TOKEN": "sometimes",
            "SSH_KEY": "~/.ssh/id_ed25519",
            "API_KEY": "not-needed",
            "DATABASE_URL": "postgresql://ann:pass-of-ann@host/db?sslmode=require",
            "HTTPS_PROXY": "http://me:proxy-word-1@proxy:8080",
        }
    )
    hidden = ["tok-0123456789", "hunter2-hunter2", "pass-of-ann", "proxy-word-1"]
    shown = ["tokens-100000", "sometimes", "~/.ssh/id_ed25519", "not-needed", "postgresql://ann", "sslmode=require"]
    text = SECRETS.text(" ".join(hidden + shown))
    assert not [each for each in hidden if each in text]
    assert not [each for each in shown if each not in text]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("at https://ann:pw@host/v1", "at https://ann:***@host/v1"),
        ("GET /v1?key=pw&model=m", "GET /v1?key=***&model=m"),
        ("Authorization: Bearer pw1, and more", "Authorization: ***, and more"),
        ("OPENAI_API_KEY=pw gesta run", "OPENAI_API_KEY=*** gesta run"),
        ("keys of the map; token=5 is a member", "keys of the map; token=5 is a member"),
    ],
)
def test_a_message_shows_no_secret_that_is_known_by_where_it_stands(text: str, clean: str) -> None:
    assert str(GestaError(text)) == clean
    assert encode_content(UserContent(value=text)) == json.dumps({"kind": "user", "value": text}, separators=(",", ":"))


def test_a_tool_is_not_called_with_a_secret(tmp_path: Path) -> None:
    secret, called = gesta.secret("crm", "tok-0123456789"), list[str]()

    @gesta.tool(effect="once")
    def login(token: str) -> str:
        """Log in."""
        called.append(token)
        return "in"

    agent = gesta.Agent("a", gesta.scripted(gesta.call("login", token=secret), "No."), tools=[login])
    gesta.run_sync(agent, "go", record=str(tmp_path / "a.gesta"), session="s")
    assert not called

    async def results() -> list[Any]:
        async with gesta.open(str(tmp_path / "a.gesta")) as record:
            run = (await record.find("s")).run
            entries = await record.read(run)
            approval = ApprovalContent(of=1, verdict="approved", by="ann", args={"token": secret})
            with pytest.raises(AgentError, match="The arguments hold the secret 'crm'"):
                await record.send(run, approval, key="k")
            return [each.content.tool_result for each in entries if isinstance(each.content, ToolResultContent)]

    (told,) = anyio.run(results)
    assert told.startswith("The arguments of 'login' hold the secret 'crm'. No secret is ever on record, so no tool")
    assert told.endswith("a tool reads its secrets itself. Leave it out.")


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "part", ["*", "\\", ".", "s", "sk-", "sk-0.", "%", "&#0", "\\u2022", "*•", "/", "sk-0*", "c2st"]
)
@pytest.mark.parametrize("key", ["sk-0123456789", "/-.*0123456789", "\\\\\\\\\\\\\\\\", "ssssssssssss"])
def test_looking_for_secrets_takes_a_time_that_is_linear_in_any_text(part: str, key: str) -> None:
    secrets = Secrets()
    secrets.add("key", key)
    secrets.text("compile")

    def look(size: int) -> None:
        text = part * size
        secrets.text(text)
        secrets.unfinished(text)

    assert growth(look, 5_000) < LINEAR


@pytest.mark.slow
@pytest.mark.parametrize("form", sampled([KEY, base64.b64encode(KEY.encode()).decode(), quote(KEY, safe="")], 3, 1))
def test_in_a_long_text_a_secret_is_found_though_each_character_is_not_looked_at(form: str) -> None:
    secrets = Secrets()
    secrets.add("key", KEY)
    words = "many words. " * (LONG_TEXT // 10)
    looked = list[str]()
    assert secrets.text("short") == "short"
    secrets._pattern = Counting(secrets._pattern, looked)  # type: ignore[assignment]
    assert secrets.text(words) == words
    assert not looked
    assert form not in secrets.text(words + form + words)
    assert looked


class Counting:
    """A pattern that notes that it was used."""

    def __init__(self, pattern: Any, looked: list[str]) -> None:
        self.pattern, self.looked = pattern, looked

    def __getattr__(self, name: str) -> Any:
        self.looked.append(name)
        return getattr(self.pattern, name)


@pytest.mark.parametrize("value", ["approved", "interrupted", "tool-result", "tool_name"])
def test_a_secret_that_is_one_of_our_own_words_breaks_no_entry(value: str) -> None:
    SECRETS.add("key", value)
    for content in (
        ToolResultContent(call=1, tool_result=value, status="success", outcome="interrupted"),
        ToolCallContent(tool_name=value, tool_args={"a": value}),
        ApprovalContent(of=1, verdict="approved", by=value),
    ):
        text = encode_content(content)
        read = decode_content(text, {})
        assert type(read) is type(content)
        said = [each for name, each in json.loads(text).items() if name not in ("kind", "verdict", "outcome")]
        assert f'"{value}"' not in json.dumps(said)
