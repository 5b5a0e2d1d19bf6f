# For those who build with a container engine. `make image` makes the same binary into an image without one, with its licences,
# its list of packages and more labels.
FROM rust:1.95-bookworm AS build
WORKDIR /sluice
COPY . .
RUN target="$(uname -m)-unknown-linux-gnu" \
 && RUSTFLAGS='-C target-feature=+crt-static' \
    cargo build --release --locked --package sluice --bin sluice --target "$target" \
 && mkdir -p /image/etc \
 && cp "target/$target/release/sluice" /image/sluice \
 && ln -s sluice /image/kubectl-sluice \
 && printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' > /image/etc/passwd \
 && printf 'root:x:0:\nnonroot:x:65532:\n' > /image/etc/group

FROM scratch
LABEL org.opencontainers.image.title="sluice" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image/ /
USER 65532:65532
ENTRYPOINT ["/sluice"]
