# Runs checks one after the other, all of them even when one fails, and sums up at the end.

passed=0
failed=()

# check NAME COMMAND...
check() {
  local name=$1 start=$SECONDS
  shift
  printf '\n==> %s\n' "$name"
  # A function called in a condition runs without `set -e`; in a process of its own it keeps it.
  set +e
  (set -e; "$@")
  local status=$?
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

# The last line, and the exit code.
summary() {
  local name
  echo
  for name in "${failed[@]}"; do
    printf 'failed: %s\n' "$name"
  done
  printf 'checks: %d passed, %d failed (%d s)\n' "$passed" "${#failed[@]}" "$SECONDS"
  [[ ${#failed[@]} == 0 ]]
}
