# Sends a message from one session to another over MCP and receives it. Reads URL, PROJECT and, where keys are required,
# KEY_FILE. Needs sh and curl.
if [ -n "${KEY_FILE:-}" ]; then key=$(cat "$KEY_FILE"); else key=; fi

# call TOOL ARGUMENTS: prints the answer, and ends the test if it is an error.
call() {
  answer=$(curl --silent --show-error --fail-with-body --max-time 30 --retry 5 --retry-connrefused "$URL/mcp" \
    --header 'Content-Type: application/json' --header 'Accept: application/json, text/event-stream' \
    --header 'MCP-Protocol-Version: 2026-07-28' --header 'Mcp-Method: tools/call' --header "Mcp-Name: $1" \
    --header "X-Project-ID: $PROJECT" ${key:+--header "X-API-Key: $key"} --data '{
      "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "'"$1"'", "arguments": '"$2"',
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientCapabilities": {}}}}') || { echo "$1 failed: $answer" >&2; exit 1; }
  case $answer in *'"isError":true'* | *'"error":{'*) echo "$1 failed: $answer" >&2; exit 1 ;; esac
  printf '%s\n' "$answer"
}

# register NAME: prints the id of its session.
register() {
  registered=$(call register_session '{"name": "'"$1"'"}')
  printf '%s\n' "$registered" | sed -n 's/.*"session_id":"\([^"]*\)".*/\1/p' | head -n 1
}

sender=$(register helm-test-sender)
recipient=$(register helm-test-recipient)
call register_protocol '{"session_id": "'"$sender"'", "name": "helm-test", "version": "1.0.0",
  "schema": {"type": "object"}}' >/dev/null
text="helm test $(date +%s)-$$"
call send_message '{"session_id": "'"$sender"'", "recipient_id": "helm-test-recipient", "protocol_name": "helm-test",
  "protocol_version": "1.0.0", "payload": {"text": "'"$text"'"}}' >/dev/null
received=$(call receive_messages '{"session_id": "'"$recipient"'", "wait_seconds": 10, "acknowledge": "immediate"}')
for session in "$sender" "$recipient"; do
  call disconnect_session '{"session_id": "'"$session"'"}' >/dev/null
done
case $received in
  *"$text"*) echo "received: $text" ;;
  *) echo "the message did not arrive: $received" >&2; exit 1 ;;
esac
