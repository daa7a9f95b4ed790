# Runs checks one after the other, all of them even when one fails, and sums up at the end.

passed=0
failed=()
# What each check said, where the output is no terminal.
outputs=target/checks
mkdir -p "$outputs"

# check NAME COMMAND...
check() {
  local name=$1 start=$SECONDS
  shift
  printf '\n==> %s\n' "$name"
  # A function called in a condition runs without `set -e`; in a process of its own it keeps it.
  set +e
  if [[ -t 1 ]]; then
    (set -e; "$@")
  else
    (set -e; "$@") 2>&1 | tee "$outputs/$name.log"
  fi
  local status=${PIPESTATUS[0]}
  set -e
  if [[ $status == 0 ]]; then
    passed=$((passed + 1))
    printf '==> %s: passed (%d s)\n' "$name" $((SECONDS - start))
  else
    failed+=("$name")
    printf '==> %s: FAILED with %d (%d s)\n' "$name" "$status" $((SECONDS - start))
  fi
}

note() {
  printf '\n==> note: %s\n' "$1"
}

# The last line, and the exit code. A record of the run may hold its end alone: what a failed check said last is repeated.
summary() {
  local name
  for name in "${failed[@]}"; do
    [[ ! -t 1 ]] || continue
    printf '\n==> the end of what "%s" said:\n' "$name"
    tail -n 150 "$outputs/$name.log"
  done
  echo
  for name in "${failed[@]}"; do
    printf 'failed: %s\n' "$name"
  done
  printf 'checks: %d passed, %d failed (%d s)\n' "$passed" "${#failed[@]}" "$SECONDS"
  [[ ${#failed[@]} == 0 ]]
}
