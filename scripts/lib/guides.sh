# Manual pages and completions of shells, which the program itself writes.

# write_guides PROGRAM FOLDER: writes FOLDER/man and FOLDER/completions. A program for another architecture cannot run here; then
# one for this machine writes them.
write_guides() {
  local program=("$1") folder=$2
  "${program[@]}" --version >/dev/null 2>&1 || program=(cargo run --quiet --locked --bin mcp-broker --)
  rm -rf "$folder/man" "$folder/completions"
  mkdir -p "$folder/man" "$folder/completions"
  "${program[@]}" man "$folder/man" >/dev/null
  "${program[@]}" completions bash >"$folder/completions/mcp-broker.bash"
  "${program[@]}" completions zsh >"$folder/completions/_mcp-broker"
  "${program[@]}" completions fish >"$folder/completions/mcp-broker.fish"
}
