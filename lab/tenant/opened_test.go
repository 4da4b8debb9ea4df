package tenant

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

const orders = "/v1/databases/live/collections/orders"

// reads returns the calls that a tenant makes again and again. That of a change returns the
// document, too.
func reads() []call {
	const at = `"dataSource": "live", "database": "live", "collection": "orders"`
	update := &mooringv1.Update{
		Kind: &mooringv1.Update_Operators{Operators: text(`{"$inc": {"times": 1}}`)},
	}
	return []call{
		{
			rpc: "DocumentService/Find", path: orders + "/documents:find", body: `{}`,
			message: &mooringv1.FindRequest{Database: "live", Collection: "orders"},
		},
		{
			rpc: "DocumentService/FindOne", path: orders + "/documents:findOne", body: `{"filter": {"n": 1}}`,
			message: &mooringv1.FindOneRequest{Database: "live", Collection: "orders", Filter: text(`{"n": 1}`)},
		},
		{
			rpc: "DocumentService/Distinct", path: orders + "/documents:distinct", body: `{"fieldName": "secret"}`,
			message: &mooringv1.DistinctRequest{Database: "live", Collection: "orders", FieldName: "secret"},
		},
		{
			rpc: "DocumentService/StreamFind", path: orders + "/documents:streamFind", body: `{}`,
			message: &mooringv1.StreamFindRequest{Database: "live", Collection: "orders"},
		},
		{
			rpc: "DocumentService/FindOneAndUpdate", path: orders + "/documents:findOneAndUpdate",
			body: `{"filter": {}, "update": {"$inc": {"times": 1}}}`,
			message: &mooringv1.FindOneAndUpdateRequest{
				Database: "live", Collection: "orders", Filter: text(`{}`), Update: update,
			},
		},
		{action: "find", body: `{` + at + `}`},
		{action: "findOne", body: `{` + at + `, "filter": {"n": 1}}`},
	}
}

func text(json string) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: json}}
}

// opened is something that a tenant has open.
type opened struct {
	name, tenant string
	// check goes on with it after a change has been applied, of a name. If stays is set, the tenant
	// must be able to.
	check func(now int, stays bool, change string)
}

// openAll opens, for each tenant and in each protocol, a change stream, live documents, a stream of
// documents whose client does not read, a page, and a transaction.
func (l *live) openAll(round int) (all []opened) {
	l.Helper()
	for _, tenant := range tenants {
		for _, w := range l.ways {
			if w.token == nil { // the Data API holds nothing open
				all = append(all, l.insertion(w, tenant))
				continue
			}
			all = append(
				all,
				l.openStream(w, tenant, call{
					rpc: "ChangeStreamService/Watch", path: orders + ":watch", body: `{}`,
					message: &mooringv1.WatchRequest{Database: "live", Collection: new("orders")},
				}),
				l.openStream(w, tenant, call{
					rpc: "ChangeStreamService/Live", path: orders + "/documents:live", body: `{}`,
					message: &mooringv1.LiveRequest{Database: "live", Collection: "orders"},
				}),
				l.openStream(w, tenant, call{
					rpc: "DocumentService/StreamFind", body: `{}`,
					path:    "/v1/databases/live/collections/big/documents:streamFind",
					message: &mooringv1.StreamFindRequest{Database: "live", Collection: "big"},
				}),
				l.openPage(w, tenant),
				l.openTransaction(w, tenant, round),
				l.insertion(w, tenant),
			)
		}
	}
	return all
}

// openStream opens a stream and reads how it begins. The rest is read after the change, to the end
// or to the last document, which was inserted after the change, or is beyond what was sent before.
func (l *live) openStream(w way, tenant string, c call) opened {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 30*time.Second)
	l.Cleanup(cancel)
	what := w.name + " " + c.rpc
	s, err := w.open(ctx, l.keys[tenant], c)
	var shown found
	if err == nil {
		err = shown.next(s)
	}
	if err != nil {
		l.Fatalf("%s of %s: %v", what, tenant, err)
	}
	from, _ := l.times()
	return opened{what, tenant, func(now int, stays bool, change string) {
		l.Helper()
		defer cancel()
		defer s.close()
		late, end := fmt.Sprint("late", now), fmt.Sprint("end", now)
		for err == nil && !shown.has(end) && !shown.has("last") {
			err = shown.next(s)
		}
		if ctx.Err() != nil {
			l.Errorf("%s: %s of %s does not end", change, what, tenant)
		}
		if stays && err != nil {
			l.Errorf("%s: %s of %s: %v, %.300s", change, what, tenant, err, shown.rest)
		}
		l.judge(change+": "+what, tenant, now, now, shown.marks, func(name string) bool {
			return name == "last" || name == late || name == end
		})
		l.judge(change+": "+what, tenant, from, now, shown.marks, nil)
	}}
}

// found holds the marks that a stream has shown, and what may be the beginning of one.
type found struct{ marks, rest []byte }

// next reads the next part of a stream.
func (f *found) next(s stream) error {
	part, err := s.next()
	f.rest = append(f.rest, part...)
	at := max(0, len(f.rest)-100)
	for _, mark := range marks.FindAllIndex(f.rest, -1) {
		f.marks = append(f.marks, f.rest[mark[0]:mark[1]]...)
		at = max(at, mark[1])
	}
	f.rest = append(f.rest[:0], f.rest[at:]...)
	return err
}

// has reports whether a document of that name was shown.
func (f *found) has(name string) bool { return bytes.Contains(f.marks, []byte(":"+name+";")) }

// openPage reads a first page. The next ones are read after the change.
func (l *live) openPage(w way, tenant string) opened {
	l.Helper()
	first := call{
		rpc: "DocumentService/Find", path: orders + "/documents:find", body: `{"batchSize": 2}`,
		message: &mooringv1.FindRequest{
			Database: "live", Collection: "orders", BatchSize: new(int32(2)),
		},
	}
	what := w.name + " CursorService/NextPage"
	answer, ok := w.all(l.Context(), l.keys[tenant], first)
	token := w.token(answer)
	if !ok || token == "" {
		l.Fatalf("%s of %s: no cursor in %s", what, tenant, answer)
	}
	return opened{what, tenant, func(now int, stays bool, change string) {
		l.Helper()
		answer, ok := w.all(l.Context(), l.keys[tenant], call{
			rpc: "CursorService/NextPage", path: "/v1/cursors:next",
			body:    fmt.Sprintf(`{"cursor": %q}`, token),
			message: &mooringv1.NextPageRequest{Cursor: token},
		})
		l.judge(change+": "+what, tenant, now, now, answer, nil)
		if stays && (!ok || !bytes.Contains(answer, []byte("seen:mark:"+tenant))) {
			l.Errorf("%s: %s of %s: %s", change, what, tenant, answer)
		}
	}}
}

// openTransaction begins a transaction with a document. After the change it is read in, and
// committed: that the tenant may do only if its rights are the same.
func (l *live) openTransaction(w way, tenant string, round int) opened {
	l.Helper()
	what := w.name + " transaction"
	transactions := mooringv1.NewTransactionServiceClient(l.gateway.Dial(l.T))
	begun, err := transactions.Begin(
		metadata.AppendToOutgoingContext(l.Context(), "api-key", l.keys[tenant]),
		&mooringv1.TransactionServiceBeginRequest{})
	if err != nil {
		l.Fatal(err)
	}
	token, name := begun.GetTransaction(),
		fmt.Sprint("t", round, strings.ReplaceAll(w.name, "-", ""))
	document := fmt.Sprintf(`{"tenant": %q, "n": 0, "mark": %q}`, tenant,
		markOf("mark", tenant, 0, name))
	answer, ok := w.all(l.Context(), l.keys[tenant], call{
		rpc: "DocumentService/InsertOne", path: orders + "/documents:insertOne",
		body: fmt.Sprintf(`{"document": %s, "transaction": %q}`, document, token),
		message: &mooringv1.InsertOneRequest{
			Database: "live", Collection: "orders", Document: text(document), Transaction: &token,
		},
	})
	if !ok {
		l.Fatalf("%s of %s: %s", what, tenant, answer)
	}
	return opened{what, tenant, func(now int, stays bool, change string) {
		l.Helper()
		answer, _ := w.all(l.Context(), l.keys[tenant], call{
			rpc: "DocumentService/Find", path: orders + "/documents:find",
			body: fmt.Sprintf(`{"transaction": %q}`, token),
			message: &mooringv1.FindRequest{
				Database: "live", Collection: "orders", Transaction: &token,
			},
		})
		l.judge(change+": find in "+what, tenant, now, now, answer, nil)
		answer, ok := w.all(l.Context(), l.keys[tenant], call{
			rpc: "TransactionService/Commit", path: "/v1/transactions:commit",
			body:    fmt.Sprintf(`{"transaction": %q}`, token),
			message: &mooringv1.TransactionServiceCommitRequest{Transaction: &token},
		})
		l.wrote(change+": commit of "+what, tenant, ok, stays, answer)
	}}
}

// insertion inserts a document after the change.
func (l *live) insertion(w way, tenant string) opened {
	what := w.name + " insertOne"
	return opened{what, tenant, func(now int, stays bool, change string) {
		l.Helper()
		document := fmt.Sprintf(`{"tenant": %q, "n": 0}`, tenant)
		c := call{
			rpc: "DocumentService/InsertOne", path: orders + "/documents:insertOne",
			body: `{"document": ` + document + `}`,
			message: &mooringv1.InsertOneRequest{
				Database: "live", Collection: "orders", Document: text(document),
			},
		}
		if w.token == nil {
			c = call{
				action: "insertOne",
				body:   `{"dataSource": "live", "database": "live", "collection": "orders", "document": ` + document + `}`,
			}
		}
		answer, ok := w.all(l.Context(), l.keys[tenant], c)
		l.mu.Lock()
		refused := l.history[now][tenant].nothing
		l.mu.Unlock()
		if refused || stays {
			l.wrote(change+": "+what, tenant, ok, stays, answer)
		}
	}}
}

// wrote counts a write that was done and must not be, and fails the test if one that may be done
// was not.
func (l *live) wrote(what, tenant string, done, may bool, answer []byte) {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case done && !may:
		l.leaks = append(l.leaks, fmt.Sprintf("%s of %s is done", what, tenant))
	case may && !done:
		l.Errorf("%s of %s: %s", what, tenant, answer)
	}
}
