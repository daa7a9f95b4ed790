# syntax=docker/dockerfile:1
# The image of the broker: one static binary and the certificates of public authorities. It has no shell and runs as an
# unprivileged user, with a root file system that may be read-only.
#
#   docker build --tag mcp-broker .                                    builds everything from the sources
#   docker build --tag mcp-broker --build-arg BINARY=prebuilt .        takes target/dist/, which scripts/release builds
#   docker build --target symbols --output target/symbols .            the debug symbols of the same build
#
# With SOURCE_DATE_EPOCH (and --timestamp of buildah, or rewrite-timestamp=true of BuildKit) the same commit gives the same digest.

ARG RUST_VERSION=1.95
ARG BINARY=build

# Builds from the sources, on the platform of the builder and for the platform of the image.
FROM --platform=${BUILDPLATFORM:-linux/amd64} docker.io/library/rust:${RUST_VERSION}-bookworm AS build
ARG TARGETARCH=amd64
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /src
# hadolint ignore=DL3008
RUN if [[ $TARGETARCH == arm64 && $(uname -m) != aarch64 ]]; then \
      apt-get update && apt-get install --yes --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
      && rm -rf /var/lib/apt/lists/* && rustup target add aarch64-unknown-linux-gnu; \
    fi
# The dependencies, from the manifests and empty sources: this layer stays until a manifest or Cargo.lock changes.
COPY Cargo.toml Cargo.lock ./
COPY actors/Cargo.toml actors/
COPY api/Cargo.toml api/
COPY cli/Cargo.toml cli/
COPY common/Cargo.toml common/
COPY fake-backend/Cargo.toml fake-backend/
COPY front/Cargo.toml front/
COPY lens/Cargo.toml lens/
COPY load/Cargo.toml load/
COPY oracle/Cargo.toml oracle/
COPY rest/Cargo.toml rest/
COPY rest/answer/Cargo.toml rest/answer/
COPY schema/Cargo.toml schema/
COPY storage/Cargo.toml storage/
COPY test-client/Cargo.toml test-client/
COPY scripts/lib/static.sh scripts/lib/
# hadolint ignore=SC1091
RUN mkdir -p src {actors,api,cli,common,fake-backend,front,lens,load,oracle,rest,rest/answer,schema,storage,test-client}/src oracle/src/bin actors/tests/tree benches \
    && touch src/lib.rs {actors,api,cli,common,front,lens,load,oracle,rest,rest/answer,schema,storage,test-client}/src/lib.rs actors/tests/tree/main.rs \
    && echo 'fn main() {}' | tee src/main.rs {fake-backend,load,oracle}/src/main.rs oracle/src/bin/bare-actix.rs >/dev/null \
    && sed -n '/^\[\[bench\]\]/,/^name/s/^name = "\(.*\)"/benches\/\1.rs/p' Cargo.toml | xargs touch \
    && source scripts/lib/static.sh && build_static "$(static_target "$TARGETARCH")"
COPY . .
# The times of the sources may be older than those of the empty ones.
RUN find src actors api cli common fake-backend front lens load oracle rest schema storage test-client -name '*.rs' -exec touch {} + && scripts/release --arch "$TARGETARCH" --binary-only \
    && mkdir /out && cp target/dist/mcp-broker target/dist/mcp-broker.debug /etc/ssl/certs/ca-certificates.crt /out/

# Takes what scripts/release has built outside.
FROM scratch AS prebuilt
COPY target/dist/mcp-broker target/dist/mcp-broker.debug target/dist/ca-certificates.crt /out/

# hadolint ignore=DL3006
FROM ${BINARY} AS binary

FROM scratch AS symbols
COPY --from=binary /out/mcp-broker.debug /

FROM scratch AS runtime
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="mcp-broker" \
      org.opencontainers.image.description="Message broker for AI agents that speak MCP" \
      org.opencontainers.image.source="https://github.com/mcp-broker/mcp-broker" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=binary --chmod=0644 /out/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=binary --chmod=0755 /out/mcp-broker /usr/bin/mcp-broker
# In a container the broker is reached from outside; it refuses this address without authentication unless ALLOW_ANONYMOUS says otherwise.
ENV MCP_BROKER_HOST=0.0.0.0 \
    MCP_BROKER_LOG_FORMAT=json \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
WORKDIR /
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/usr/bin/mcp-broker", "healthcheck"]
ENTRYPOINT ["/usr/bin/mcp-broker"]
CMD ["serve"]
