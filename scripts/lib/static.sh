# Builds binaries for servers: on Linux linked statically, so that one file runs on every distribution and in an empty image.

# static_target [ARCHITECTURE]: the Rust target for an architecture as container images name it; this machine's by default.
static_target() {
  case ${1:-$(uname -m)} in
    amd64 | x86_64) echo x86_64-unknown-linux-gnu ;;
    arm64 | aarch64) echo aarch64-unknown-linux-gnu ;;
    *) echo "no static build for the architecture $1" >&2; return 1 ;;
  esac
}

# build_static TARGET CARGO_ARGUMENTS...: builds the binary, with COMPILER_FLAGS in addition. The same sources give the same bytes in
# every folder.
build_static() {
  local target=$1 flags
  shift
  flags="-C target-feature=+crt-static --remap-path-prefix=$PWD=/src --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
  # Packed, the addresses that the start of the program adjusts are some 20 KB in place of 1.5 MB, which each process would read.
  # Linking statically, this needs glibc 2.36 where the binary is built, and nothing where it runs.
  [[ $target == x86_64-* ]] && flags+=" -C link-arg=-Wl,-z,pack-relative-relocs"
  if [[ $target == aarch64-* && $(uname -m) != aarch64 ]]; then
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
  fi
  RUSTFLAGS="$flags ${COMPILER_FLAGS:-}" cargo build --profile dist --locked --target "$target" --bin mcp-broker "$@"
}
