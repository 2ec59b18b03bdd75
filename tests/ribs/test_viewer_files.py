"""Images and files of entries: found where they are, and sent so that no browser takes one for a page."""

import base64
from collections.abc import Iterator

import httpx2
import pytest
from tests.viewing import visited

import gesta
from gesta.kinds import ArtifactContent, Part, ToolCallContent, ToolResultContent, UserContent
from gesta.views.files import files

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(60))
PAGE = b"<script>alert(1)</script>"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    path = tmp_path_factory.mktemp("files") / "files.gesta"
    with gesta.open_sync(path) as record, record.span("desk", session="s") as span:
        parts = [
            Part(type="text", text="Look"),
            Part(type="image", data=PNG, media_type="text/html"),
            Part(type="file", data=PAGE, media_type="image/png", name="a.html"),
            Part(type="image", data=PNG * 3000, media_type="image/png"),
            Part(type="image", url="https://elsewhere.example/a.png"),
        ]
        span.log(UserContent(value="", parts=parts))
        call = span.log(ToolCallContent(tool_name="scan", tool_args={}))
        assert call is not None
        span.log(ToolResultContent(tool_result=[PNG, PAGE], call=call.seq))
        span.log(ArtifactContent(name="gone.png", media_type="image/png", blob="0" * 64))
        run = span.run
    with visited(path, at=f"/api/0/runs/{run}/") as opened:
        yield opened


def test_an_image_is_sent_with_the_type_of_its_bytes_and_all_else_is_saved(client: httpx2.Client) -> None:
    sent = [client.get(f"entries/2/files/{place}") for place in range(3)]
    assert [each.headers["content-type"] for each in sent] == ["image/png", "application/octet-stream", "image/png"]
    assert [each.headers.get("content-disposition") for each in sent] == [None, "attachment", None]
    assert [len(each.content) for each in sent] == [len(PNG), len(PAGE), len(PNG) * 3000]
    for each in sent:
        assert each.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in each.headers.get_list("content-security-policy")[0]


def test_what_is_not_on_record_is_not_sent(client: httpx2.Client) -> None:
    for path in ("2/files/3", "2/files/4", "99/files/0", "1/files/0", "2/files/-1"):
        assert client.get(f"entries/{path}").status_code == 404
    assert client.get("entries/5/files/0").status_code == 500


def test_lines_name_the_files_and_leave_their_bytes_out(client: httpx2.Client) -> None:
    lines = client.get("lines").json()
    assert [(each["type"], each["image"]) for each in lines[1]["parts"]] == [
        ("image/png", True),
        ("application/octet-stream", False),
        ("image/png", True),
        ("image", False),
    ]
    assert lines[3]["value"] == [f"[image/png, {len(PNG)} bytes]", f"[application/octet-stream, {len(PAGE)} bytes]"]
    assert len(client.get("lines").content) < 5000


def test_images_are_found_in_base64_wherever_they_stand_and_words_are_not_taken_for_them() -> None:
    text = base64.b64encode(PNG).decode()
    block = {"type": "image", "data": text, "mimeType": "text/html"}
    result = ToolResultContent(
        tool_result="said", document={"content": [block, {"u": f"data:image/png;base64,{text}"}]}
    )
    assert [each.data for each in files(result)] == [PNG, PNG]
    words = [
        "/9j/" + "word " * 20,
        "/9j/" + "word\n" * 20 + "!",
        "iVBO" + "A" * 50,
        "data:image/png;base64," + "!" * 50,
        "data:text/html;base64," + "A" * 60,
    ]
    assert files(ToolResultContent(tool_result=words)) == []
    deep: object = text
    for _ in range(200):
        deep = [deep]
    assert files(ToolResultContent(tool_result=deep)) == []
