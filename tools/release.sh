#!/usr/bin/env bash
# Makes what a release consists of, in a directory: static binaries, the image as an OCI archive of
# those for Linux, the chart, the systemd unit, a bill of materials (CycloneDX) of each binary, and
# checksums. The same commit, Go and CA certificates give the same bytes. It needs GNU tar.
#
#	VERSION=v0.1.0 tools/release.sh DIRECTORY [os/arch …]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
dist=$1
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
	windows/amd64)
go=${GO:-go}
: "${VERSION:?}"
export VERSION COMMIT=${COMMIT:-$(git rev-parse HEAD)} GOTOOLCHAIN=local
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
number=${VERSION#v}

mkdir -p "$dist"
dist=$(cd "$dist" && pwd)
rm -f "$dist"/*
images=()
for target in "${targets[@]}"; do
	os=${target%/*} arch=${target#*/}
	echo "mooring for $os on $arch"
	binary=$dist/mooring_${number}_${os}_$arch
	[ "$os" != windows ] || binary+=.exe
	GO=$go GOOS=$os GOARCH=$arch tools/build.sh "$binary"
	[ "$os" != linux ] || images+=("$target=$binary")
done

if [ ${#images[@]} -gt 0 ]; then
	echo "image"
	$go run ./tools/image -o "$dist/mooring-image-$number.oci.tar" -version "$VERSION" \
		-commit "$COMMIT" -epoch "$epoch" "${images[@]}"
fi

echo "chart"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# A version of the chart is a semantic version; a description of a commit is not.
[[ $number =~ ^[0-9]+\.[0-9]+\.[0-9]+(-.*)?$ ]] || number=0.0.0-$number
$go tool -modfile=tools/helm/go.mod helm package deploy/helm/mooring --destination "$tmp" \
	--version "$number" --app-version "$VERSION" >/dev/null
# Helm writes the present time into the package.
tar -C "$tmp" -xzf "$tmp/mooring-$number.tgz"
tar -C "$tmp" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw,a-s \
	-cf - mooring | gzip -n9 >"$dist/mooring-chart-$number.tgz"
cp deploy/systemd/mooring.service "$dist/"

echo "bills of materials"
# One for each binary, since the modules depend on the system.
for binary in "$dist"/mooring_*; do
	# It logs its progress; that is of interest only if it fails.
	$go tool -modfile=tools/sbom/go.mod cyclonedx-gomod bin -json -noserial -version "$VERSION" \
		-output "$tmp/sbom.json" "$binary" 2>"$tmp/sbom.log" || { cat "$tmp/sbom.log" >&2; exit 1; }
	# The time is not part of a bill.
	$go version -m "$binary" | awk '$1 == "dep" {print $2}' | sort >"$tmp/modules"
	python3 - "$tmp/sbom.json" "$epoch" "$tmp/modules" >"$tmp/bill" <<'P'
import datetime, json, sys
bill = json.load(open(sys.argv[1]))
when = datetime.datetime.fromtimestamp(int(sys.argv[2]), datetime.timezone.utc)
bill["metadata"]["timestamp"] = when.strftime("%Y-%m-%dT%H:%M:%SZ")
missing = set(open(sys.argv[3]).read().split()) - {c["name"] for c in bill["components"]}
if missing:
    sys.exit(f"the bill of materials lacks {sorted(missing)}")
json.dump(bill, sys.stdout, indent=2)
print()
P
	mv "$tmp/bill" "$binary.cdx.json"
done

(cd "$dist" && sha256sum -- * >checksums.txt && cat checksums.txt)
