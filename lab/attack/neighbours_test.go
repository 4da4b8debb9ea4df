package attack_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// hostile is one form of a tenant that takes more than it should, beside a quiet one that makes a
// findOne every few milliseconds. Both have API keys, rights by a policy, and limits.
type hostile struct {
	name string
	run  func(t *testing.T, ctx context.Context, g *target) map[string]int
}

// calls is a form that makes the same call over and over, from so many clients at once.
func calls(name string, clients int, path string, body func() []byte) hostile {
	return hostile{name, func(_ *testing.T, ctx context.Context, g *target) map[string]int {
		text := body()
		return repeat(clients, ctx, func() string {
			return g.send(ctx, http.MethodPost, path, text)
		})
	}}
}

func text(s string) func() []byte { return func() []byte { return []byte(s) } }

// listOf returns a request with a field of many items, of about size bytes.
func listOf(field, item string, size int) func() []byte {
	return func() []byte {
		items := strings.Repeat(item+",", max(1, size/(len(item)+1)))
		return []byte(`{"` + field + `": [` + strings.TrimSuffix(items, ",") + `]}`)
	}
}

const (
	orders = collections + "orders_100000/documents"
	whole  = collections + "orders_1000/documents" // without hidden fields, which exclude If-Match
	slow   = collections + "slow_1000/documents"
	order  = `{"tenant": 1, "a": [1, 2, 3], "b": "text"}`
)

var hostiles = []hostile{
	calls("small calls", 200, orders+":findOne", text("{}")),
	calls("large inserts", 16, orders+":insertMany",
		listOf("documents", order, 2<<20)),
	calls("slow finds", 200, slow+":find", text("{}")),
	{"unread streams", func(t *testing.T, ctx context.Context, g *target) map[string]int {
		return g.keep(t, ctx, 60, "POST "+collections+"docs_100_15500000/documents:streamFind "+
			"HTTP/1.1\r\nAccept: application/x-ndjson\r\nContent-Length: 2\r\n", "{}")
	}},
	calls("open cursors", 40, orders+":find", text(`{"batchSize": 2}`)),
	calls("open transactions", 40, "/v1/transactions:begin", text("{}")),
	calls("change streams", 100, "/v1/databases/d/collections/slow_1000:watch",
		text("{}")),
	{"tickets", func(_ *testing.T, ctx context.Context, g *target) map[string]int {
		return repeat(100, ctx, func() string {
			url, status := g.ticket(ctx, "slow_60000")
			if url == "" {
				return status
			}
			return g.send(ctx, http.MethodGet, url, nil)
		})
	}},
	{"imports", func(_ *testing.T, ctx context.Context, g *target) map[string]int {
		body := []byte(strings.Repeat(order+"\n", 200_000))
		return repeat(16, ctx, func() string {
			return g.send(ctx, http.MethodPost, orders+":import", body,
				"Content-Type", "application/x-ndjson")
		})
	}},
	calls("bulk writes", 16, orders+":bulkWrite", listOf("models",
		`{"updateOne": {"filter": {"_id": 1}, "update": {"$set": {"a": 1}}}}`, 2<<20)),
	calls("aggregations with $facet", 16, orders+":aggregate",
		func() []byte { return facets(900, 20) }),
	{"unfinished bodies", func(t *testing.T, ctx context.Context, g *target) map[string]int {
		return g.keep(t, ctx, 200, "POST "+orders+":insertMany HTTP/1.1\r\n"+
			"Content-Length: 67108863\r\n", strings.Repeat(" ", 256<<10))
	}},
	{"calls that are given up", func(_ *testing.T, ctx context.Context, g *target) map[string]int {
		return repeat(140, ctx, func() string {
			soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			return g.send(soon, http.MethodPost, slow+":insertOne",
				[]byte(`{"document": `+order+`}`))
		})
	}},
	{"bad preconditions", func(_ *testing.T, ctx context.Context, g *target) map[string]int {
		body := []byte(`{"$set": {"a": "` + strings.Repeat("x", 64<<10) + `"}}`)
		return repeat(100, ctx, func() string {
			return g.send(ctx, http.MethodPatch, whole+"/0", body,
				"If-Match", `"z1Rjm0tx6Q4pJVqSuo8fCk2d.s"`)
		})
	}},
	{"one idempotency key", func(_ *testing.T, ctx context.Context, g *target) map[string]int {
		return repeat(100, ctx, func() string {
			return g.send(ctx, http.MethodPost, orders+":insertOne",
				[]byte(`{"document": `+order+`}`),
				"Idempotency-Key", `"the-same"`)
		})
	}},
}

// tenants returns a gateway with two API keys, and with limits.
func tenants(t *testing.T) setup {
	t.Helper()
	quiet, line := suite.Key(t, "quiet")
	other, otherLine := suite.Key(t, "hostile")
	const rules = `
@filter("{'tenant': 1}")
@hidden("salary")
permit (principal, action in [Action::"read", Action::"write"], resource in Database::"d");
@filter("{'tenant': 1}")
permit (principal, action in [Action::"read", Action::"write"],
  resource == Collection::"d.orders_1000");
permit (principal, action in [Action::"watch", Action::"own"], resource);
`
	return setup{key: quiet, hostileKey: other, server: shardedServer, args: []string{
		"--auth-api-keys-file", file(t, line+"\n"+otherLine), "--policy-file", file(t, rules),
		"--idempotency-key-file", file(t, suite.NewKey(t)),
		"--change-streams-max-per-principal", "20", "--streams-max-per-principal", "100",
	}}
}

const neighboursHeading = "| hostile tenant | peak | alone | beside | direct | times | " +
	"refused | CPU | its calls |\n|---|---|---|---|---|---|---|---|---|\n"

// TestNeighbours measures what each form of a hostile tenant costs a quiet one.
func TestNeighbours(t *testing.T) {
	table := neighboursHeading
	defer func() { t.Log("\n" + table) }()
	for _, h := range hostiles {
		t.Run(h.name, func(t *testing.T) {
			var results []result
			for range max(1, rounds()) {
				results = append(results, measure(t, tenants(t), func(g *target) string {
					ctx, cancel := context.WithTimeout(t.Context(),
						seconds(10, 1))
					defer cancel()
					return tally(h.run(t, ctx, g))
				}))
			}
			sum := summarize(results)
			row := fmt.Sprintf("| %s | %d MiB | %s | %s | %s | %s | %d of %d | %.0f %% | %s |\n",
				h.name, sum.peak>>20, short(sum.median.alone), short(sum.median.during),
				short(sum.median.direct), sum.times(), sum.refused, sum.calls,
				100*sum.median.share, sum.median.attacker)
			t.Log("\n" + row)
			table += row
			sum.judge(t)
			if sum.refused > 0 {
				t.Errorf("%d of %d calls of the quiet tenant failed: %s", sum.refused, sum.calls,
					sum.why)
			}
		})
	}
}
