package clients_test

import (
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/registry"
)

const grpcurl = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4"

// TestReflection calls the gateway with grpcurl and with buf curl, which know nothing of the API
// but what the gateway's reflection tells them.
func TestReflection(t *testing.T) {
	g := startScripted(t)
	const find = "mooring.v1.DocumentService/FindOne"
	const insert = `{"database": "shop", "collection": "orders",
		"document": {"json": "{\"_id\": 7, \"total\": 5}"}}`
	const request = `{"database": "shop", "collection": "orders", "filter": {"json": "{\"_id\": 7}"}}`
	const encoding = "mooring-document-encoding: json"
	const answer = `{\"_id\":7,\"total\":5}`
	t.Run("grpcurl", func(t *testing.T) {
		bin := t.TempDir()
		registry.Fetch(t, root(t), []string{"GOBIN=" + bin}, "go", "install", grpcurl)
		curl := func(args ...string) string {
			return run(t, bin, nil, filepath.Join(bin, "grpcurl"),
				append([]string{"-plaintext"}, args...)...)
		}
		want(t, curl(g.GRPC, "list"), "mooring.v1.DocumentService", "grpc.health.v1.Health")
		want(t, curl(g.GRPC, "describe", "mooring.v1.FindOneRequest"), "Document filter = 15")
		curl("-d", insert, g.GRPC, "mooring.v1.DocumentService/InsertOne")
		want(t, curl("-H", encoding, "-d", request, g.GRPC, find), answer)
	})
	t.Run("buf", func(t *testing.T) {
		buf := []string{
			"tool", "-modfile=tools/buf/go.mod", "buf", "curl", "--protocol", "grpc",
			"--http2-prior-knowledge", "--reflect",
		}
		out := run(t, root(t), nil, "go", append(buf, "-H", encoding, "-d", request,
			"http://"+g.GRPC+"/"+find)...)
		want(t, out, answer)
	})
}
