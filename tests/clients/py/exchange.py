"""The least that a client must be able to do: register, send, receive, acknowledge. For clients that call tools and do
nothing else."""

from scenario import expect, expect_no_complaints, step


async def exchange(alice, bob, topic):
    """What one agent says to another, both ways. `topic` keeps names apart on one broker."""
    alice_name, bob_name, protocol = f"alice-{topic}", f"bob-{topic}", f"chat-{topic}"

    step("two agents register under their names")
    for agent, name in [(alice, alice_name), (bob, bob_name)]:
        session = await agent.call("register_session", name=name)
        expect((session["name"], session["resumed"], session["queue_size"]), (name, False, 0))
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    await alice.call("register_protocol", name=protocol, version="1.0.0", schema=schema)

    for sender, receiver, name in [(alice, bob, bob_name), (bob, alice, alice_name)]:
        step(f"a message to {name} waits, is delivered, and is acknowledged")

        async def status(message_id):
            return (await sender.call("get_message_status", message_id=message_id))["recipients"][0]["status"]

        envelope = {"protocol_name": protocol, "protocol_version": "1.0.0", "payload": {"text": f"hello {name}"}}
        message_id = (await sender.call("send_message", recipient_id=name, **envelope))["message_id"]
        expect(await status(message_id), "queued")
        received = await receiver.call("receive_messages", acknowledge="manual", wait_seconds=1)
        expect(received["remaining"], 0)
        [message] = received["messages"]
        expect((message["message_id"], message["payload"]), (message_id, envelope["payload"]))
        expect(await status(message_id), "delivered")
        acknowledged = await receiver.call("acknowledge_messages", message_ids=[message_id])
        expect((acknowledged["acknowledged"], acknowledged["unknown"]), (1, []))
        expect(await status(message_id), "acknowledged")
        expect((await receiver.call("receive_messages"))["messages"], [])

    step("what is refused says why")
    envelope["recipient_id"] = f"nobody-{topic}"
    expect((await alice.refusal("send_message", **envelope))["code"], "session_not_found")
    expect_no_complaints()
