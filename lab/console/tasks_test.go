package console_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// task does something that people come for, from the first view to where its result shows, and
// checks what it costs.
func (s *scene) task(name string, clicks, keys int, do func(h *hand)) {
	s.t.Helper()
	s.visit("#/deployment", "Deployment")
	s.shows("changes show as they happen")
	h := &hand{scene: s}
	do(h)
	s.t.Logf("%s: %d clicks, %d keys, %d scrolls: %s",
		name, h.clicks, h.keys, h.scrolls, strings.Join(h.steps, ", "))
	if h.clicks > clicks || h.keys > keys || h.scrolls > 0 {
		s.t.Errorf("%s costs %d clicks, %d keys and %d scrolls, want at most %d, %d and none",
			name, h.clicks, h.keys, h.scrolls, clicks, keys)
	}
	if dir := os.Getenv("LAB_CONSOLE_SHOTS"); dir != "" {
		file := filepath.Join(dir, "task-"+strings.ReplaceAll(name, " ", "-")+".png")
		if err := os.WriteFile(file, s.page.Screenshot(), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestTasks does four things that people come for, with a mouse and a keyboard alone.
func TestTasks(t *testing.T) {
	s := newRuledScene(t, deployment.ReplicaSet)
	s.deployment.SetDocuments("shop.orders", document(t, `{"_id":1,"tenant":"acme","total":5}`))
	s.callSlowlyAndRefused()
	for _, h := range s.deployment.Cluster().Hosts() {
		h.Handle("explain", func(*fakemongo.Command) fakemongo.Reply {
			return fakemongo.Document(document(t, `{"ok":1,"executionStats":{"executionStages":
				{"stage":"COLLSCAN","docsExamined":1,"nReturned":1}}}`))
		})
	}
	s.signIn(s.operator)
	s.task("find a slow query", 1, 0, func(h *hand) {
		h.clicksOn("Slow and refused")
		h.sees("{tenant: ?, total: {$gt: ?}}")
		h.sees("server ") // and the milliseconds
		h.showsServerTime()
	})
	s.task("open a slow query", 3, 0, func(h *hand) {
		h.clicksOn("Slow and refused")
		h.clicksOn("Open in Query")
		h.clicksOn("Explain")
		h.sees("COLLSCAN")
	})
	s.task("explain a refusal", 2, 0, func(h *hand) {
		h.clicksOn("Slow and refused")
		h.clicksOn("Why?")
		h.sees("names a field that the caller may not use")
		h.sees("What is known of it is allowed by tenant")
		h.sees("Hidden fields")
	})
	s.task("change one field", 5, 1, func(h *hand) {
		h.clicksOn("Query")
		h.clicksOn("shop.orders")
		h.clicksOn("Edit")
		h.selects("5")
		h.types("6")
		h.clicksOn("Save the change")
		h.sees("The document is changed.")
	})
	after, _ := s.deployment.Documents("shop.orders")
	if got, want := fmt.Sprint(after),
		fmt.Sprint([]bson.Raw{document(t, `{"_id":1,"tenant":"acme","total":6}`)}); got != want {
		t.Errorf("the documents are %s, want %s", got, want)
	}
	s.task("copy as code", 3, 0, func(h *hand) {
		h.clicksOn("Query")
		h.clicksOn("shop.orders")
		h.clicksOn("Go")
		h.sees("client.In[bson.Raw]")
	})
	s.isClean()
}

// TestPinTask finds out who holds a connection that is pinned.
func TestPinTask(t *testing.T) {
	s := newRuledScene(t, deployment.LoadBalanced)
	var orders []bson.Raw
	for i := range 5 {
		orders = append(orders, document(t, fmt.Sprintf(`{"_id":%d,"tenant":"acme"}`, i)))
	}
	s.deployment.SetDocuments("shop.orders", orders...)
	if status, answer := s.post(s.reader, findOrders, `{"batchSize":2}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	s.signIn(s.operator)
	s.shows("by whom?")
	s.shoot("pinned")
	s.judge("a pinned connection")
	s.task("see who holds a pin", 1, 0, func(h *hand) {
		h.clicksOn("by whom?")
		h.sees("key:reader")
		h.sees("idle, pinned")
	})
	s.isClean()
}
