"""A chat system calls a webhook for each message, and again if no reply comes. Each message is answered only once.

Prints:
    event Ev1: 200, answered
    event Ev1, sent again: 200, answered
    event Ev2, forged: 401,
    posted to the channel: ['Order 42 is on its way.']
    replies of the model: 2
"""

import asyncio
import hmac
import json

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import gesta

SECRET = b"shared with the chat system"
CHANNEL: dict[str, str] = {}


@gesta.tool(effect="idempotent")
def post(text: str, context: gesta.Context) -> str:
    """Post to the channel, which keeps one message for each key."""
    CHANNEL[context.key] = text
    return "posted"


model = gesta.scripted(gesta.call("post", text="Order 42 is on its way."), "Answered.")
agent = gesta.Agent("helper", model=model, tools=[post])


async def main() -> None:
    async with gesta.open("webhook.gesta") as record:

        async def hear(request: Request) -> Response:
            body = await request.body()
            signature = hmac.digest(SECRET, body, "sha256").hex()
            if not hmac.compare_digest(signature, request.headers.get("x-signature", "")):
                return Response(status_code=401)
            event = json.loads(body)
            return Response((await record.run(agent, event["text"], session=event["channel"], key=event["id"])).reason)

        app = Starlette(routes=[Route("/events", hear, methods=["POST"])])
        sent = json.dumps({"id": "Ev1", "channel": "C7", "text": "Where is order 42?"}).encode()
        headers = {"x-signature": hmac.digest(SECRET, sent, "sha256").hex()}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://chat") as chat:
            for name, body in {"Ev1": sent, "Ev1, sent again": sent, "Ev2, forged": sent.replace(b"1", b"2")}.items():
                answer = await chat.post("/events", content=body, headers=headers)
                print(f"event {name}: {answer.status_code}, {answer.text}".rstrip())
        print(f"posted to the channel: {list(CHANNEL.values())}")
        print(f"replies of the model: {(await record.stats('model'))['scripted'].requests}")


asyncio.run(main())
