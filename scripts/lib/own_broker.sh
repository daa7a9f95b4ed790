# A broker and a Redis of a script's own, on free ports, which end with the script. The script that sources this sets
# `broker` to the binary. Needs python3, redis-server and curl.

folder=$(mktemp -d) broker_pid='' redis_pid='' redis_port='' url=''
stop() {
  local pid
  for pid in $broker_pid $redis_pid; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 1' INT TERM

fails() {
  echo "$0: $1" >&2
  cat "$folder"/*.log >&2 2>/dev/null || true
  exit 1
}

# start_redis: a server on a free port, which loads the dump.rdb of `folder` if there is one. Sets redis_port.
start_redis() {
  local port
  for _ in {1..10}; do
    port=$((20000 + RANDOM % 40000))
    redis-server --port "$port" --bind 127.0.0.1 --dir "$folder" --save '' >"$folder/redis.log" 2>&1 &
    redis_pid=$!
    for _ in {1..200}; do
      if grep -qs 'Ready to accept connections' "$folder/redis.log"; then
        redis_port=$port
        export MCP_BROKER_REDIS_URL=redis://127.0.0.1:$port
        return
      fi
      kill -0 "$redis_pid" 2>/dev/null || break
      sleep 0.05
    done
  done
  fails "Redis does not start"
}

# start_broker FLAG...: sets url and MCP_BROKER_URL.
start_broker() {
  # It is read before the process may have opened it.
  : >"$folder/broker.log"
  "$broker" serve "$@" --port 0 --log-format json 2>"$folder/broker.log" &
  broker_pid=$!
  for _ in {1..200}; do
    url=$(sed -nE 's,.*(http://[0-9.]+:[0-9]+)/mcp.*,\1,p;T;q' "$folder/broker.log")
    if [[ -n $url ]] && curl --fail --silent --output /dev/null "$url/readyz"; then
      export MCP_BROKER_URL=$url
      return
    fi
    kill -0 "$broker_pid" 2>/dev/null || break
    sleep 0.05
  done
  fails "the broker does not start"
}

stop_broker() {
  kill "$broker_pid"
  wait "$broker_pid" || fails "the broker did not stop in order"
  broker_pid=''
}

# call KEY TOOL ARGUMENTS: one call over stateless HTTP; prints the tool's result.
call() {
  python3 - "$url" "$@" <<'PYTHON'
import json, sys, urllib.request
url, key, tool, arguments = sys.argv[1:]
meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "mcp-broker-script", "version": "1"}}
body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": tool, "arguments": json.loads(arguments), "_meta": meta}}
headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "X-API-Key": key,
           "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
with urllib.request.urlopen(urllib.request.Request(url + "/mcp", json.dumps(body).encode(), headers), timeout=30) as answer:
    text = answer.read().decode()
if "data: " in text:
    text = [line[6:] for line in text.splitlines() if line.startswith("data: {")][-1]
result = json.loads(text)
if "error" in result or result["result"].get("isError"):
    sys.exit(f"{tool}: {text}")
print(result["result"]["content"][0]["text"])
PYTHON
}

# stop_redis: after it has written dump.rdb into `folder`.
stop_redis() {
  redis-cli -p "$redis_port" SAVE >/dev/null
  kill "$redis_pid"
  wait "$redis_pid" || true
  redis_pid=''
}

# field NAME: prints a member of the JSON object on stdin.
field() {
  python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}
