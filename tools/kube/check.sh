#!/usr/bin/env bash
# Applies what the chart renders to a real kube-apiserver, as a dry run, in a namespace where the
# restricted Pod Security standard is enforced. It builds kube-apiserver and kubectl from their Go
# module, which takes minutes, and needs etcd (Debian: etcd-server) and openssl.
set -euo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go}
etcd=$(command -v etcd) || { echo "etcd is missing (apt-get install etcd-server)"; exit 1; }

# The custom resources come from the modules that define them.
gateway_api=v1.6.3
prometheus_operator=v0.94.1

dir=$(mktemp -d)
pids=()
stop() {
	# There is nothing to keep, and the API server would wait for an etcd that is gone.
	for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
	wait 2>/dev/null || true
	rm -rf "$dir"
}
trap stop EXIT

bin=${KUBE_BIN:-$PWD/bin/kube}
mkdir -p "$bin"
echo "building kube-apiserver and kubectl (minutes the first time) ..."
(cd tools/kube && CGO_ENABLED=0 $go build -trimpath -o "$bin/" k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl)
"$bin/kube-apiserver" --version
helm=$($go tool -n -modfile=tools/helm/go.mod helm)
module() { $go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'; }

read -r client peer api < <(python3 -c '
import socket
s = [socket.socket() for _ in range(3)]
for x in s: x.bind(("127.0.0.1", 0))
print(*[x.getsockname()[1] for x in s])')

"$etcd" --data-dir "$dir/etcd" --listen-client-urls "http://127.0.0.1:$client" \
	--advertise-client-urls "http://127.0.0.1:$client" --listen-peer-urls "http://127.0.0.1:$peer" \
	--initial-advertise-peer-urls "http://127.0.0.1:$peer" \
	--initial-cluster "default=http://127.0.0.1:$peer" >"$dir/etcd.log" 2>&1 &
pids+=($!)

openssl genrsa -out "$dir/sa.key" 2048 2>/dev/null
echo "secret,admin,admin,system:masters" >"$dir/tokens"
"$bin/kube-apiserver" --etcd-servers="http://127.0.0.1:$client" --secure-port="$api" \
	--bind-address=127.0.0.1 --cert-dir="$dir/certs" --token-auth-file="$dir/tokens" \
	--service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$dir/sa.key" \
	--service-account-signing-key-file="$dir/sa.key" --service-cluster-ip-range=10.0.0.0/24 \
	--authorization-mode=RBAC --disable-admission-plugins=ServiceAccount >"$dir/api.log" 2>&1 &
pids+=($!)
kubectl() {
	"$bin/kubectl" --server="https://127.0.0.1:$api" --insecure-skip-tls-verify --token=secret "$@"
}
export HOME=$dir
for _ in $(seq 120); do
	kubectl get --raw /readyz >/dev/null 2>&1 && break
	sleep 1
done
kubectl get --raw /readyz >/dev/null || { tail -20 "$dir/api.log"; exit 1; }

crds=$(module "sigs.k8s.io/gateway-api@$gateway_api")/config/crd/standard
operator=$(module "github.com/prometheus-operator/prometheus-operator@$prometheus_operator")
for file in "$crds"/*_{http,grpc}routes.yaml \
	"$operator"/example/prometheus-operator-crd/*_{servicemonitors,prometheusrules}.yaml; do
	kubectl create -f "$file" >/dev/null
done
kubectl wait --for=condition=Established --timeout=60s crd --all >/dev/null
kubectl create namespace mooring >/dev/null
kubectl label namespace mooring pod-security.kubernetes.io/enforce=restricted \
	pod-security.kubernetes.io/warn=restricted >/dev/null
kubectl get namespace mooring --show-labels

failed=0
# A Deployment is checked by a warning only, so its Pod is applied as well; a warning fails.
pod() {
	python3 -c '
import json, sys
d = json.load(sys.stdin)
t = d["spec"]["template"]
print(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **t["metadata"]}, "spec": t["spec"]}))'
}
refuses() { # a name, a manifest that must be refused
	if kubectl -n mooring apply --dry-run=server --validate=strict -f - >"$dir/out" 2>&1; then
		echo "NOT REFUSED: $1"
		failed=1
	else
		echo "refused, as it must be: $1: $(tail -1 "$dir/out" | cut -c1-160)"
	fi
}
for values in deploy/helm/mooring/ci/*.yaml; do
	echo "== $(basename "$values")"
	$helm template test deploy/helm/mooring --namespace mooring -f "$values" >"$dir/all.yaml"
	kubectl -n mooring apply --dry-run=server --validate=strict -f "$dir/all.yaml" 2>&1 | tee "$dir/out" ||
		failed=1
	grep -q "^Warning" "$dir/out" && failed=1
	kubectl create --dry-run=client --validate=false -o json -f "$dir/all.yaml" >"$dir/all.json"
	python3 -c '
import json, re
text = open("'"$dir"'/all.json").read()
decoder, at, found = json.JSONDecoder(), 0, None
while at < len(text):
    o, at = decoder.raw_decode(text, at)
    at += len(text[at:]) - len(text[at:].lstrip())
    for i in o.get("items", [o]):
        if i["kind"] == "Deployment": found = i
print(json.dumps(found))' | pod >"$dir/pod.json"
	kubectl -n mooring apply --dry-run=server --validate=strict -f "$dir/pod.json" 2>&1 || failed=1
done
echo "== controls"
sed 's/runAsNonRoot": true/runAsNonRoot": false/' "$dir/pod.json" | refuses "a Pod that may be root"
sed 's/"containers"/"container"/' "$dir/pod.json" | refuses "a Pod with an unknown field"
[ $failed = 0 ] && echo "all manifests were accepted"
exit $failed
