# Moves the symbols of a binary into a file beside it.

# split_symbols BINARY FOLDER
split_symbols() {
  local name
  name=$(basename "$1")
  mkdir -p "$2"
  objcopy --only-keep-debug "$1" "$2/$name.debug"
  # Through another file: the one in place may be running.
  objcopy --strip-all "$1" "$2/$name.new"
  (cd "$2" && objcopy --add-gnu-debuglink="$name.debug" "$name.new")
  mv "$2/$name.new" "$2/$name"
}
