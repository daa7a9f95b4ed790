# Which parts of the contract run again with another storage, and which over another kind of connection. The house test
# `suites` checks that each name is a module of tests/contract and that every group runs everywhere.

# Parts whose promise is kept before a storage is asked: frames, headers, connections, scopes, texts, budgets in memory,
# presence. What they ask a storage for, other parts of their group ask for too. They run with one storage.
without_storage=(
  api::{backends,settings}
  auth::{acting_project,discovery,other_users,scopes,tokens}
  desk::{rights,yaps}
  http::{bodies,cors,hostile_clients,listen,modern,modern_headers,replay,replay_bounds,rest,session_presence,sse,timeouts}
  limits::{bytes_in_flight,fair_share,rates,rest_bytes_in_flight,worst_frames}
  mcp::{caller_mistakes,eras,prompts,refusals,resources,tasks,tool_list}
  operations::{documentation,refusals}
  protocols::negotiation
  questions::{clients,permission,rights,yaps}
  sessions::{acting,frozen_broker}
  websocket::hostile_clients
)

# Parts that do not depend on the kind of connection and run over the local socket too. Left out are, beside parts that use no
# socket,
# - frames of WebSockets and pings: `websocket`, most of `limits`, `sessions::presence`, `sessions::frozen_broker`. An open
#   socket is a sign of life by itself;
# - what HTTP alone has, with an agent at a socket as the partner at most: most of `http`;
# - requests before `initialize`, which a socket serves as 2025-11-25 does: `mcp::eras`;
# - tools of an operator: `auth`, `mcp::tool_list`, `mcp::tools`. A program on the socket has the scope `member`;
# - the gauge of connections over WebSocket: `operations::metrics`.
over_socket=(
  http::{push,session_presence,sessions,waits}
  limits::{rates::callers_without_a_key,worst_calls::many_expensive}
  mcp::{caller_mistakes,prompts,refusals,resources,subscriptions,tasks}
  messages::{broadcasts,call_receipts,envelope,outcomes,push,receipts,receiving,redelivery,reports,texts,threads,versions}
  protocols::{negotiation,registry}
  sessions::takeovers
)

# Calls beyond 256 of a connection: over lines they wait, and are not refused (`gateway` `run::lines_wait_*`).
refused_over_websocket=(calls_in_flight_on_a_connection calls_under_one_request_id)

# either NAME...: a pattern that matches each of them.
either() {
  local IFS='|'
  echo "$*"
}
