#!/bin/sh
# Builds the gateway as one static binary. make build, make release and deploy/Dockerfile use it, so
# that all binaries are built in the same way: the same sources, Go, VERSION and COMMIT give the same
# bytes, wherever they are.
#
#	VERSION=v0.1.0 COMMIT=… GOOS=linux GOARCH=arm64 tools/build.sh OUTPUT
set -eu
output=$1
build=github.com/mooringdb/mooring/cmd/gateway/internal/build
CGO_ENABLED=0 "${GO:-go}" build ${BUILDFLAGS:-} -trimpath -buildvcs=false \
	-ldflags "-s -w -X $build.version=${VERSION:-devel} -X $build.commit=${COMMIT:-unknown}" \
	-o "$output" ./cmd/gateway
