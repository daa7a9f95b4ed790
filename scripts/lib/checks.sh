# Runs checks one after the other, all of them even when one fails, and sums up at the end.

passed=0
failed=()
# What each check said, where the output is no terminal.
outputs=target/checks
mkdir -p "$outputs"
# The tests of this run that passed at their second attempt only, and those of all runs in this folder.
repeated=$outputs/repeated repeated_ever=target/repeated-tests.tsv
: >"$repeated"

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

# note_repeated REPORT: reads the names from a report of nextest.
note_repeated() {
  awk -F '"' '/<testcase / { name = $4 " " $2 } /<flaky(Failure|Error)/ { print name }' "$1" | sort --unique >>"$repeated"
}

# The last line, and the exit code. A record of the run may hold its end alone: what a failed check said last is repeated.
summary() {
  local name
  for name in "${failed[@]}"; do
    [[ ! -t 1 ]] || continue
    printf '\n==> the end of what "%s" said:\n' "$name"
    tail -n 150 "$outputs/$name.log"
  done
  printf '\ntests that passed at the second attempt only: %d\n' "$(wc -l <"$repeated")"
  if [[ -s $repeated ]]; then
    sed 's/^/  /' "$repeated"
    sed "s/^/$(date --utc +%FT%TZ)\t$(git rev-parse --short HEAD)\t/" "$repeated" >>"$repeated_ever"
    printf '  (%s has those of earlier runs)\n' "$repeated_ever"
  fi
  echo
  for name in "${failed[@]}"; do
    printf 'failed: %s\n' "$name"
  done
  printf 'checks: %d passed, %d failed (%d s)\n' "$passed" "${#failed[@]}" "$SECONDS"
  [[ ${#failed[@]} == 0 ]]
}
