"""What two agents do with a broker, step by step. The SDK behind an agent makes no difference."""

import asyncio
import json
from datetime import datetime

from scenario import expect, expect_no_complaints, step

TOOLS = {
    "acknowledge_messages",
    "broadcast_message",
    "compatibility_matrix",
    "discover_protocols",
    "disconnect_session",
    "get_message_status",
    "get_thread",
    "heartbeat",
    "list_dead_letters",
    "list_sessions",
    "negotiate_capabilities",
    "receive_messages",
    "redrive_dead_letters",
    "register_protocol",
    "register_session",
    "search_messages",
    "send_message",
}

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1}, "großes Wort": {"type": "integer"}},
    "required": ["text"],
    "additionalProperties": False,
}


def listed_id(session):
    """The id by which lists and messages name a registered session."""
    return session["session_id"][:-8] + "00000000"


async def tools(agent):
    step("tools/list: every tool, in a stable order, with a title, schemas and hints")
    listed = await agent.tools()
    expect(TOOLS - {tool["name"] for tool in listed}, set(), "tools that are missing")
    for tool in listed:
        name, hints = tool["name"], tool["annotations"] or {}
        expect(bool(tool["title"] or hints.get("title")), True, f"{name} has a title")
        expect(tool["inputSchema"]["type"], "object", name)
        # The result of permission_prompt is one text.
        schema = None if name == "permission_prompt" else "object"
        expect((tool["outputSchema"] or {}).get("type"), schema, name)
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint"]:
            expect(type(hints.get(hint)), bool, f"{name}: {hint}")
    expect([tool["name"] for tool in await agent.tools()], [tool["name"] for tool in listed], "order")


async def converse(alice, bob, topic):
    """Everything between two agents that ask for their messages. `topic` keeps names apart on one broker."""
    alice_name, bob_name, protocol = f"alice-{topic}", f"bob-{topic}", f"chat-{topic}"

    def message(text, **more):
        envelope = {"protocol_name": protocol, "protocol_version": "1.0.0", "payload": {"text": text}}
        return {"recipient_id": bob_name, **envelope, **more}

    async def status(message_id):
        recipients = (await alice.call("get_message_status", message_id=message_id))["recipients"]
        expect(len(recipients), 1, "recipients")
        return recipients[0]["status"]

    def texts(received):
        return [message["payload"]["text"] for message in received["messages"]]

    step("two agents register a name and what they can do")
    speaks = {"supported_protocols": {protocol: ["1.0.0"]}, "supported_features": ["tasks", "drafts"]}
    a = await alice.call("register_session", name=alice_name, capabilities=speaks, metadata={"model": "a"})
    speaks = {"supported_protocols": {protocol: ["1.1.0"]}, "supported_features": ["tasks", "voice"]}
    b = await bob.call("register_session", name=bob_name, capabilities=speaks)
    for session, name in [(a, alice_name), (b, bob_name)]:
        expect(session["name"], name)
        expect(session["status"], "active")
        expect(session["project_id"], "default")
        expect(session["resumed"], False)
        expect(session["queue_size"], 0)

    step("one of them registers a protocol")
    definition = {
        "name": protocol,
        "version": "1.0.0",
        "schema": SCHEMA,
        "capabilities": ["point_to_point", "broadcast"],
        "metadata": {"author": "alice", "description": "Short texts", "tags": ["chat"]},
    }
    registered = await alice.call("register_protocol", **definition)
    expect((registered["name"], registered["version"]), (protocol, "1.0.0"))
    twice = await bob.refusal("register_protocol", **{**definition, "schema": {"type": "object"}})
    expect(twice["code"], "protocol_exists")

    step("the other one discovers it")
    found = await bob.call("discover_protocols", name=protocol, version="^1.0", include_schema=True)
    expect([protocol["schema"] for protocol in found["protocols"]], [SCHEMA])

    step("each finds the other by the protocol it speaks")
    sessions = (await bob.call("list_sessions", protocol=protocol, include_capabilities=True))["sessions"]
    expect(sorted(session["name"] for session in sessions), [alice_name, bob_name])

    step("they negotiate: the lower of two compatible versions, and the features that both have")
    required = [{"name": protocol, "version": "1.0.0"}]
    agreed = await alice.call("negotiate_capabilities", target_session_id=bob_name, required_protocols=required)
    expect(agreed["compatible"], True)
    expect(agreed["supported_protocols"], {protocol: "1.0.0"})
    expect(agreed["feature_intersections"], ["tasks"])
    expect(agreed["unsupported_features"], {"ours": ["drafts"], "theirs": ["voice"]})

    step(f"{bob_name} subscribes to {bob.inbox} and is told of a message sent to its name")
    await bob.subscribe(bob.inbox)
    headers = {"correlation_id": "c-1", "priority": "high"}
    sent = await alice.call("send_message", **message("hello", headers=headers))
    expect(sent["status"], "queued")
    await bob.told[bob.inbox].next()
    expect(await status(sent["message_id"]), "queued")
    expect(await bob.unread(), 1, "unread")
    expect(len(await bob.read(bob.inbox)) > 0, True, "the inbox can be read")

    step("it receives the message, and the status says delivered, not more")
    received = await bob.call("receive_messages", acknowledge="manual")
    expect(received["remaining"], 0)
    [hello] = received["messages"]
    expect(hello["message_id"], sent["message_id"])
    expect((hello["sender_id"], hello["sender_name"]), (listed_id(a), alice_name))
    expect(hello["recipient_id"], listed_id(b))
    expect((hello["project_id"], hello["protocol_name"], hello["protocol_version"]), ("default", protocol, "1.0.0"))
    expect(hello["payload"], {"text": "hello"})
    expect((hello["headers"]["priority"], hello["headers"]["correlation_id"]), ("high", "c-1"))
    expect(hello["delivery_count"], 1)
    # Python before 3.11 cannot read the Z of RFC 3339.
    datetime.fromisoformat(hello["timestamp"].replace("Z", "+00:00"))
    expect(await status(sent["message_id"]), "delivered")

    step("it acknowledges the message, and the status says acknowledged")
    expect((await bob.call("acknowledge_messages", message_ids=[sent["message_id"]]))["unknown"], [])
    expect(await status(sent["message_id"]), "acknowledged")
    expect(texts(await bob.call("receive_messages")), [])

    step("a long poll waits, lets other calls overtake it, and ends with the message")
    poll, progress = await bob.poll(acknowledge="immediate")
    expect((await bob.call("heartbeat"))["status"], "active")
    # Progress is sent once per heartbeat interval, which is short when this runs as a test.
    if b["heartbeat_interval_seconds"] <= 1:
        first, second = await progress.next(), await progress.next()
        expect(0 < first < second, True, f"progress: {first}, {second}")
    waiting = message("grüß dich \U0001f44b\u2028", wait_for="acknowledged", timeout_seconds=10)
    expect((await alice.call("send_message", **waiting))["status"], "acknowledged")
    expect(texts(await poll), ["grüß dich \U0001f44b\u2028"])

    step("order within a priority, and the next call acknowledges what the last one returned")
    for text in ["one", "two", "three"]:
        await alice.call("send_message", **message(text))
    urgent = await alice.call("send_message", **message("zero", headers={"priority": "urgent"}))
    first = await bob.call("receive_messages", limit=3, acknowledge="on_next")
    expect((texts(first), first["remaining"]), (["zero", "one", "two"], 1))
    expect(texts(await bob.call("receive_messages", acknowledge="on_next")), ["three"])
    expect(await status(urgent["message_id"]), "acknowledged")
    expect(texts(await bob.call("receive_messages", acknowledge="on_next")), [])

    step("a payload that violates the schema is refused and says where")
    invalid = await alice.refusal("send_message", **{**message(""), "payload": {"text": 5, "extra": True}})
    expect(invalid["code"], "payload_invalid")
    expect("/text" in json.dumps(invalid), True, f"{invalid} says where")
    nobody = await alice.refusal("send_message", **message("x", recipient_id=f"nobody-{topic}"))
    expect(nobody["code"], "session_not_found")
    expect(texts(await bob.call("receive_messages")), [])

    step("an unknown tool is a JSON-RPC error")
    try:
        await alice.call_tool("no_such_tool", {})
    except alice.RpcError as error:
        expect(error.error.code, -32602)
    else:
        raise AssertionError("an unknown tool was called")

    step("a broadcast reaches whom its filter lets through, and not its sender")
    cast = await alice.call(
        "broadcast_message",
        protocol_name=protocol,
        protocol_version="1.0.0",
        payload={"text": "to all"},
        capability_filter={"protocols": {protocol: "^1.0"}, "features": ["voice"]},
    )
    expect((cast["recipients"], cast["failed"], cast["failures"]), (1, 0, []))
    [heard] = (await bob.call("receive_messages", acknowledge="immediate"))["messages"]
    expect((heard["message_id"], heard["recipient_id"]), (cast["message_id"], None))
    expect(texts(await alice.call("receive_messages")), [])

    step("after the end of a subscription nothing is told any more")
    # An update of the inbox under its other URI arrives after the earlier updates.
    if not bob.stateless:
        await bob.subscribe(bob.named_inbox)
        await alice.call("send_message", **message("loudly"))
        await bob.told[bob.named_inbox].next()
    await bob.unsubscribe(bob.inbox)
    # In one era a subscription ends by a notification: an answer to a later request proves that it was handled.
    await bob.call("heartbeat")
    told = bob.told[bob.inbox].count
    await alice.call("send_message", **message("quietly"))
    if not bob.stateless:
        await bob.told[bob.named_inbox].next()
    expect(texts(await bob.call("receive_messages", wait_seconds=10, acknowledge="immediate"))[-1], "quietly")
    expect(bob.told[bob.inbox].count, told, "updates after the subscription")

    step("no message was pushed to an agent that did not declare the extension, and no frame was unreadable")
    expect(bob.pushed.count, 0)
    expect(alice.problems + bob.problems, [])
    expect_no_complaints()


async def come_back(alice, bob, reconnect, topic):
    """A name outlives its connection: who comes back under it finds its inbox."""
    bob_name, protocol = f"bob-{topic}", f"chat-{topic}"
    step(f"{bob_name} hangs up, is sent a message, and finds it when it comes back under its name")
    await bob.close()
    envelope = {"protocol_name": protocol, "protocol_version": "1.0.0", "payload": {"text": "while you were out"}}
    expect((await alice.call("send_message", recipient_id=bob_name, **envelope))["status"], "queued")
    back = await reconnect()
    speaks = {"supported_protocols": {protocol: ["1.1.0"]}, "supported_features": []}
    session = await back.call("register_session", name=bob_name, capabilities=speaks)
    expect((session["resumed"], session["queue_size"]), (True, 1))
    kept = await back.call("receive_messages", acknowledge="immediate")
    expect([message["payload"]["text"] for message in kept["messages"]], ["while you were out"])
    return back


async def push(sender, receiver, topic):
    """A sender, and a receiver that declared the push extension."""
    protocol = f"push-{topic}"

    def send(number, **more):
        envelope = {"protocol_name": protocol, "protocol_version": "1.0.0", "payload": {"number": number}}
        return sender.call("send_message", recipient_id=f"receiver-{topic}", **envelope, **more)

    until_acknowledged = {"wait_for": "acknowledged", "timeout_seconds": 10}

    step("a sender, and an agent that can be pushed messages")
    await sender.call("register_session", name=f"sender-{topic}")
    speaks = {"supported_protocols": {protocol: ["1.0.0"]}, "supported_features": []}
    await receiver.call("register_session", name=f"receiver-{topic}", capabilities=speaks)
    await receiver.expect_pushes()
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    await sender.call("register_protocol", name=protocol, version="1.0.0", schema=schema)

    step("a pushed message is delivered, and acknowledged when its receiver says so by notification")
    delivered = await send(1, wait_for="delivered", timeout_seconds=10)
    expect(delivered["status"], "delivered")
    first = await receiver.pushed.next()
    expect((first["message_id"], first["payload"]), (delivered["message_id"], {"number": 1}))
    waiting = asyncio.create_task(send(2, **until_acknowledged))
    second = await receiver.pushed.next()
    await receiver.acknowledge(message_ids=[first["message_id"], second["message_id"]])
    expect((await waiting)["status"], "acknowledged")

    step("one acknowledgement covers everything up to a message")
    burst = [asyncio.create_task(send(number, **until_acknowledged)) for number in [3, 4, 5]]
    messages = [await receiver.pushed.next() for _ in burst]
    numbers = [message["payload"]["number"] for message in messages]
    expect(numbers if sender.ordered else sorted(numbers), [3, 4, 5])
    await receiver.acknowledge(up_to=messages[-1]["message_id"])
    expect([(await answer)["status"] for answer in burst], ["acknowledged"] * 3)
    expect((await receiver.call("heartbeat"))["queue_size"], 0)
    expect(sender.problems + receiver.problems, [])
    expect_no_complaints()
