"""A real HTTP server on loopback that speaks the OpenAI protocol, well or badly, as a test wants it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

from jianmu.model import ChatModel, lookup


@dataclass
class Answer:
    """What the server sends to one request.

    Attributes:
        chunks: the events of a stream, as JSON; a str is sent as it is.
        status: the HTTP status; another one than 200 sends `body`.
        headers: more headers.
        body: the JSON of an error.
        hold: wait before chunk number `hold`, until the client has gone.
        cut: close the connection after the chunks, in the middle of the reply.
        done: what ends a stream.
    """

    chunks: Sequence[Any] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    hold: int | None = None
    cut: bool = False
    done: str = "data: [DONE]\n\n"


class Server:
    """What was asked of the server.

    Attributes:
        requests: the bodies of the requests, as JSON.
        connections: how many connections are open.
        holding: is set when an answer holds.
        left: how many clients went while an answer was held.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.headers: list[str] = []
        self.connections = 0
        self.holding = anyio.Event()
        self.left = 0
        self.url = ""

    def model(self, name: str = "small") -> ChatModel:
        """Return the real adapter, pointed at this server."""
        return lookup(f"openai_compatible:{self.url}#{name}")

    async def serve(self, stream: SocketStream) -> None:
        """Answer the requests of one connection."""
        self.connections += 1
        try:
            async with stream:
                while await self._exchange(stream):
                    pass
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
            pass
        finally:
            self.connections -= 1

    async def _exchange(self, stream: SocketStream) -> bool:
        """Answer one request; False when the connection is to be closed."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length"))
        while len(body) < length:
            body += await stream.receive()
        self.headers.append(head.decode())
        self.requests.append(json.loads(body))
        return await self._answer(stream, self.answers.pop(0))

    async def _answer(self, stream: SocketStream, answer: Answer) -> bool:
        if answer.status != 200:
            body = json.dumps(answer.body if answer.body is not None else {"error": {"message": "no"}}).encode()
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **answer.headers}
            await stream.send(_head(answer.status, headers) + body)
            return True
        if answer.hold != 0:
            await stream.send(_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}))
        for number, chunk in enumerate(answer.chunks):
            if number == answer.hold:
                await self._hold(stream)
                return False
            text = chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}\n\n"
            await stream.send(f"{len(text.encode()):x}\r\n{text}\r\n".encode())
        if answer.hold is not None:
            await self._hold(stream)
            return False
        if answer.cut:
            return False
        end = f"{len(answer.done):x}\r\n{answer.done}\r\n" if answer.done else ""
        await stream.send(f"{end}0\r\n\r\n".encode())
        return True

    async def _hold(self, stream: SocketStream) -> None:
        """Say nothing until the client has gone."""
        self.holding.set()
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self.left += 1


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[Server]:
    """Run a server that gives these answers, request by request."""
    server = Server(answers)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        yield server
        tasks.cancel_scope.cancel()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return one event of a stream."""
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "small", "choices": choices, **more}


def said(*words: str, finish: str | None = "stop") -> list[Any]:
    """Return the events of a reply that is text, with its usage."""
    usage = {"prompt_tokens": 7, "completion_tokens": len(words), "total_tokens": 7 + len(words)}
    return [
        *(chunk({"content": word}) for word in words),
        chunk(finish=finish),
        {**chunk(), "choices": [], "usage": usage},
    ]


def called(index: int, call_id: str, name: str, *fragments: str) -> list[Any]:
    """Return the events of one tool call, its arguments in fragments."""
    first = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    rest = [{"index": index, "function": {"arguments": fragment}} for fragment in fragments]
    return [chunk({"tool_calls": [part]}) for part in (first, *rest)]


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
