# One image for the operator, the agent and nftlb; which of them runs is the first argument.
# Everything in it comes from Debian's packages, and from the packages that requirements-image.lock pins by hash. nftlb is
# built from Debian's source package and patches of ours: docs/nftlb-defects.md.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
# hatchling from Debian, so that what builds the wheel is signed as well.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-hatchling python3-pip python3-venv
COPY requirements-image.lock /src/
RUN python3 -m venv --without-pip /opt/kube-nftlb \
    && python3 -m pip --python /opt/kube-nftlb/bin/python install --retries 8 --no-cache-dir --no-compile --only-binary :all: \
        --require-hashes -r /src/requirements-image.lock
COPY LICENSE README.md pyproject.toml /src/
COPY kube_nftlb /src/kube_nftlb
RUN python3 -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel /src \
    && python3 -m pip --python /opt/kube-nftlb/bin/python install --no-cache-dir --no-compile --no-deps --no-index \
        /wheel/*.whl
# The typed clients of the kubernetes package are 1,400 modules that nothing here imports. What is imported is compiled
# now, because the root file system of a running container is read-only, and stays as source for tracebacks.
RUN cd /opt/kube-nftlb/lib/python3*/site-packages \
    && rm -r kubernetes/client/api kubernetes/aio/client/api \
    && python3 -m compileall -q -x 'kubernetes/(aio/)?client/models/' --invalidation-mode unchecked-hash . \
    && find /opt/kube-nftlb -exec touch -h -d @0 {} +

FROM ${BASE} AS nftlb
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev libev-dev libjansson-dev libmnl-dev libnftables-dev patch
COPY lab/nftlb /src/nftlb
RUN /src/nftlb/build /nftlb && touch -d @0 /nftlb

FROM ${BASE}
# Nobody in here is to become somebody else: no file keeps a setuid or setgid bit.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bird2 libev4t64 libjansson4 libmnl0 libnftables1 nftables python3 \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /var/cache/debconf/* /var/log/* \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
COPY --from=build /opt/kube-nftlb /opt/kube-nftlb
# nftlb's licence, the AGPL, asks for its source: how it is made of Debian's is beside it.
COPY lab/nftlb /usr/share/doc/nftlb
COPY --from=nftlb /nftlb /usr/sbin/nftlb
ENV PATH=/opt/kube-nftlb/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# The agent and nftlb are started as root, with NET_ADMIN and nothing else; the operator needs no right on its machine.
USER 65532:65532
ENTRYPOINT ["kube-nftlb"]
CMD ["--help"]
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kube-nftlb" \
    org.opencontainers.image.description="A kube-proxy replacement that balances Services with nftlb and nftables" \
    org.opencontainers.image.licenses="Apache-2.0 AND AGPL-3.0-or-later" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
# For container engines other than Kubernetes, which has probes of its own.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["kube-nftlb", "healthy"]
