package worst_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// The chart's Pod has podMemory, and podLimit for GOMEMLIMIT.
const (
	podMemory = 512 << 20
	podLimit  = "460MiB"
)

// values returns a request of insertMany with about so many bytes, in documents of small values
// that a server would take.
func values(size int) []byte {
	const each = 2 << 20 // becomes 13 MiB of BSON
	doc := `{"a":[` + strings.Repeat("1,", each/2) + `1]}`
	b := []byte(`{"documents":[`)
	for len(b)+len(doc) <= size {
		b = append(append(b, doc...), ',')
	}
	return append(bytes.TrimSuffix(b, []byte{','}), "]}"...)
}

// facets returns a request with a pipeline of several $facet, each with keys of so many bytes.
func facets(stages, keys, size int) []byte {
	const match = `{"$match":{"x":{"$gt":1},"y":{"$in":[1,2,3]}}},`
	pipeline := strings.TrimSuffix(strings.Repeat(match, max(size/len(match), 1)), ",")
	b := []byte(`{"pipeline":[`)
	for range stages {
		b = append(b, `{"$facet":{`...)
		for i := range keys {
			b = fmt.Appendf(b, `"f%d":[%s],`, i, pipeline)
		}
		b = append(bytes.TrimSuffix(b, []byte{','}), "}},"...)
	}
	return append(bytes.TrimSuffix(b, []byte{','}), "]}"...)
}

// TestPod sends single requests that once took more than the chart's Pod has: the gateway has its
// GOMEMLIMIT, and stays below its memory. A policy limits the documents and fields.
func TestPod(t *testing.T) {
	const rules = `
@filter("{'tenant': 1}")
@hidden("salary")
permit (principal, action, resource in Database::"limited");
permit (principal, action, resource in Database::"d");
`
	file := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, path string
		body       []byte
	}{
		{"insertMany, 14 MiB of values", "d/collections/c/documents:insertMany", values(14 << 20)},
		{"insertMany, 59 MiB of values", "d/collections/c/documents:insertMany", values(59 << 20)},
		{
			"6 $facet of 10 MB under a policy", "limited/collections/c/documents:aggregate",
			facets(6, 1, 5_700_000), // of JSON
		},
		{
			"$facet of 2,300 keys under a policy", "limited/collections/c/documents:aggregate",
			facets(1, 2300, 1),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			g, err := gateway.Start(t.Context(), gateway.Config{
				Binary: suite.Gateway(t), URI: newScript(shape{}).listen(t),
				Directory: t.TempDir(), Env: []string{"GOMEMLIMIT=" + podLimit},
				Args: []string{
					"--admin-address", "127.0.0.1:0", "--policy-file", file, "--log-level", "error",
					"--requests-queue-time", "1s",
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = g.Stop(patience) }()
			s := newSender(g, false)
			defer s.close()
			begun, before := time.Now(), cpu(t, g)
			answer := s.send(t.Context(), plain(http.MethodPost, "/v1/databases/"+row.path,
				"application/json", shape{}, row.body))
			t.Logf("%d KiB: %s in %s, %s of CPU, %d MiB at the peak", len(row.body)>>10, answer,
				time.Since(begun).Round(time.Millisecond),
				(cpu(t, g) - before).Round(time.Millisecond),
				peak(t, g)>>20)
			if most := peak(t, g); most > podMemory {
				t.Errorf("the gateway used %d MiB at the peak", most>>20)
			}
			gatewaytest.Eventually(t, patience, func() error { return account(t, g) })
		})
	}
}
