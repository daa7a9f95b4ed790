"""A model server on loopback that plays a script: it speaks enough of the Messages API of Anthropic and of the Responses API
of OpenAI for Claude Code and Codex to run turns. No model and no network is behind it."""

import json
import queue
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Call:
    """A call of a tool that the model makes."""

    def __init__(self, tool, arguments=None):
        self.tool = tool
        self.arguments = arguments or {}


class Turn:
    """One request of a client to the model: the text that the client added last, and the answer that it is waiting for."""

    def __init__(self, text, is_result):
        self.text = text
        self.is_result = is_result


class ModelServer:
    """Answers every request by a function from `Turn` to a text or a `Call`, and keeps the turns in `turns`."""

    def __init__(self, answer):
        self.answer = answer
        self.turns = queue.Queue()
        self.all_turns = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()

    def next_turn(self, wanted, seconds):
        """The next turn whose text contains `wanted`. Raises `queue.Empty` after so many seconds without any."""
        while True:
            turn = self.turns.get(timeout=seconds)
            if wanted in turn.text:
                return turn

    def _decide(self, turn):
        self.all_turns.append(turn)
        self.turns.put(turn)
        return self.answer(turn)

    def _handler(server):  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self._reply(200, "text/plain", b"")

            def do_GET(self):
                self._reply(200, "application/json", json.dumps({"data": [], "models": []}).encode())

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                path = self.path.split("?")[0]
                if path.endswith("/count_tokens"):
                    self._reply(200, "application/json", b'{"input_tokens": 10}')
                elif path.endswith("/messages"):
                    self._stream(anthropic_events(server, body))
                elif path.endswith("/responses"):
                    self._stream(openai_events(server, body))
                else:
                    self._reply(404, "application/json", b"{}")

            def _reply(self, status, kind, body):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _stream(self, events):
                text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
                self._reply(200, "text/event-stream", text.encode())

        return Handler


def texts(content):
    """All texts below a content, joined."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(texts(item) for item in content)
    if isinstance(content, dict):
        return "\n".join(texts(content[key]) for key in ("text", "content", "output") if key in content)
    return ""


def since_last_answer(items, is_answer):
    """What the client added after the last answer of the model."""
    last = max((at for at, item in enumerate(items) if is_answer(item)), default=-1)
    return items[last + 1 :]


def anthropic_events(server, body):
    added = since_last_answer(body.get("messages", []), lambda message: message.get("role") == "assistant")
    blocks = [block for message in added if isinstance(message["content"], list) for block in message["content"]]
    is_result = any(block.get("type") == "tool_result" for block in blocks)
    # Requests without tools are the client's own: titles, summaries, a probe of the key.
    answer = server._decide(Turn(texts(added), is_result)) if body.get("tools") else "ok"
    message = {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "scripted"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    if isinstance(answer, Call):
        tool = next((tool["name"] for tool in body["tools"] if tool.get("name", "").endswith(answer.tool)), f"mcp__broker__{answer.tool}")
        block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex}", "name": tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer.arguments)}
        reason = "tool_use"
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": answer}
        reason = "end_turn"
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def openai_events(server, body):
    added = since_last_answer(body.get("input", []), lambda item: item.get("type") == "function_call" or item.get("role") == "assistant")
    answer = server._decide(Turn(texts(added), any(item.get("type") == "function_call_output" for item in added)))
    number = uuid.uuid4().hex
    if isinstance(answer, Call):
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "namespace": "mcp__broker",
            "name": answer.tool,
            "arguments": json.dumps(answer.arguments),
        }
    else:
        content = [{"type": "output_text", "text": answer, "annotations": []}]
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}
    usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": f"resp_{number}"}},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {"id": f"resp_{number}", "usage": usage}},
    ]
