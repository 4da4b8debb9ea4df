package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// hasTransactions reports whether the server is not a standalone.
func hasTransactions(t *testing.T) bool {
	hello, err := suite.Direct(t).Database("admin").
		RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Raw()
	if err != nil {
		t.Fatal(err)
	}
	_, inSet := hello.Lookup("setName").StringValueOK()
	isMongos, _ := hello.Lookup("msg").StringValueOK()
	return inSet || isMongos == "isdbgrid"
}

// TestTransfers has clients move money between accounts in transactions, by two gateways, and
// repeat each transfer. Readers see the same sum at any time, each transfer happens once, and a
// change stream that is cut after every tenth event, and goes on, tells of each once.
func TestTransfers(t *testing.T) {
	if !hasTransactions(t) {
		t.Skip("MOORING_TEST_URI names a server that has no transactions")
	}
	const (
		clients, each = 4, 8
		accounts      = 5
	)
	gateways := []*gatewaytest.Gateway{suite.Start(t, suite.URI(t)), suite.Start(t, suite.URI(t))}
	db := suite.Database(t)
	documents := "[" + `{"_id": 0, "n": 100}`
	for i := 1; i < accounts; i++ {
		documents += fmt.Sprintf(`,{"_id": %d, "n": 100}`, i)
	}
	gateways[0].Post(t, gatewaytest.Documents(db, "accounts", "insertMany"),
		`{"documents": `+documents+`]}`)
	follower := follow(t, gateways[1], db)

	done := make(chan struct{})
	var movers, readers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if n := sum(t, gateways[0], db); n != 100*accounts {
				t.Errorf("a reader sees %d", n)
				return
			}
		}
	})
	for client := range clients {
		movers.Go(func() {
			for i := range each {
				name := fmt.Sprintf("%d-%d", client, i)
				body := transferBody(db, name, (client+i)%accounts, (client+3*i+1)%accounts)
				for _, wants := range []int{200, 409} { // the second one names the same payment
					got := gateways[i%2].Post(t, "/v1/transactions:run", body)
					if got.Status != wants {
						t.Errorf("%s: %d %s, want %d", name, got.Status, got.Body, wants)
					}
				}
			}
		})
	}
	movers.Wait()
	close(done)
	readers.Wait()
	want := fmt.Sprintf(`{"count": %d}`, clients*each)
	wantJSON(t,
		gateways[0].Post(t, gatewaytest.Documents(db, "payments", "countDocuments"), `{}`).Body,
		want)
	if n := sum(t, gateways[1], db); n != 100*accounts {
		t.Errorf("the sum is %d", n)
	}
	follower.expect(t, clients*each)
}

// transferBody moves 1 from an account to another, with a document that names the payment.
func transferBody(db, name string, from, to int) string {
	add := func(id, n int) string {
		return fmt.Sprintf(`{"updateOne": {"database": %q, "collection": "accounts", "filter": {"_id": %d},
			"update": {"$inc": {"n": %d}}}, "expect": {"matchedCount": 1}}`, db, id, n)
	}
	return fmt.Sprintf(`{"operations": [{"insertOne": {"database": %q, "collection": "payments",
		"document": {"_id": %q}}}, %s, %s]}`, db, name, add(from, -1), add(to, 1))
}

func sum(t *testing.T, g *gatewaytest.Gateway, db string) (n int) {
	t.Helper()
	var page struct{ Documents []struct{ N int } }
	got := g.Post(t, gatewaytest.Documents(db, "accounts", "find"), `{}`)
	if err := json.Unmarshal(got.Body, &page); err != nil || got.Status != 200 {
		t.Errorf("find: %d %s", got.Status, got.Body)
	}
	for _, doc := range page.Documents {
		n += doc.N
	}
	return n
}

// follower reads a change stream of payments, and counts them by their _id.
type follower struct {
	seen  map[string]int
	count atomic.Int64
	stop  context.CancelFunc
	ended chan struct{}
}

func follow(t *testing.T, g *gatewaytest.Gateway, db string) *follower {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	f := &follower{seen: map[string]int{}, stop: stop, ended: make(chan struct{})}
	opened := make(chan struct{})
	url := g.REST + "/v1/databases/" + db + "/collections/payments:watch"
	go func() {
		defer close(f.ended)
		after := json.RawMessage(nil)
		for first := true; ctx.Err() == nil; first = false {
			body := []byte(`{}`)
			if after != nil {
				body = fmt.Appendf(nil, `{"startAfter": %s}`, after)
			}
			next, err := f.read(ctx, url, body, func() {
				if first {
					close(opened)
				}
			})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			if next != nil {
				after = next
			}
		}
	}()
	t.Cleanup(func() { stop(); <-f.ended })
	<-opened
	return f
}

// read reads ten events of a stream, and returns the newest token. It calls opened at its first
// message.
func (f *follower) read(ctx context.Context, url string, body []byte,
	opened func(),
) (after json.RawMessage, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for n := 0; n < 10 && lines.Scan(); {
		if len(lines.Bytes()) == 0 {
			continue // nothing has changed for a while
		}
		var m struct {
			Document *struct {
				ID          json.RawMessage `json:"_id"`
				DocumentKey struct {
					ID string `json:"_id"`
				}
			}
			Progress *struct{ ResumeToken json.RawMessage }
			Error    json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.Error != nil {
			return after, fmt.Errorf("%s: %w", lines.Bytes(), err)
		}
		switch {
		case m.Progress != nil:
			after = m.Progress.ResumeToken
		case m.Document != nil:
			after = m.Document.ID
			f.seen[m.Document.DocumentKey.ID]++
			f.count.Add(1)
			n++
		}
		opened()
		opened = func() {}
	}
	return after, nil
}

// expect waits until n events have come, and looks whether each has come once.
func (f *follower) expect(t *testing.T, n int) {
	t.Helper()
	gatewaytest.Eventually(t, 20*time.Second, func() error {
		if got := f.count.Load(); got < int64(n) {
			return fmt.Errorf("%d events, want %d", got, n)
		}
		return nil
	})
	f.stop()
	<-f.ended
	for name, times := range f.seen {
		if times != 1 {
			t.Errorf("the payment %s has come %d times", name, times)
		}
	}
	if len(f.seen) != n {
		t.Errorf("%d payments have come, want %d", len(f.seen), n)
	}
}
