package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

const (
	bulkSize  = 25_000
	bulkBatch = 2_500
)

// TestBulk inserts 25,000 documents over gRPC and reads them in each way that there is; what
// comes back must be, byte for byte, what was sent.
func TestBulk(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	const collection = "bulk"
	conn := g.Dial(t)
	documents := mooringv1.NewDocumentServiceClient(conn)

	sent := make([]bson.Raw, bulkSize)
	for i := range sent {
		sent[i] = raw(t, bulkDocument(int32(i)))
	}
	for start := 0; start < bulkSize; start += bulkBatch {
		batch := make([]*mooringv1.Document, 0, bulkBatch)
		for _, d := range sent[start : start+bulkBatch] {
			batch = append(batch, &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: d}})
		}
		resp, err := documents.InsertMany(t.Context(),
			&mooringv1.InsertManyRequest{Database: db, Collection: collection, Documents: batch})
		if err != nil || resp.GetInsertedCount() != bulkBatch {
			t.Fatalf("InsertMany() from %d = %d inserted, %v", start, resp.GetInsertedCount(), err)
		}
	}

	t.Run("gRPC stream", func(t *testing.T) {
		got := newCollector(t, sent)
		stream, err := documents.StreamFind(t.Context(),
			&mooringv1.StreamFindRequest{Database: db, Collection: collection})
		if err != nil {
			t.Fatal(err)
		}
		docs, err := receive(stream)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			got.add(d.GetBson())
		}
		got.done()
	})
	t.Run("gRPC pages", func(t *testing.T) {
		got := newCollector(t, sent)
		cursors := mooringv1.NewCursorServiceClient(conn)
		page, err := documents.Find(t.Context(), &mooringv1.FindRequest{
			Database: db, Collection: collection, BatchSize: new(int32(3000)),
		})
		if err != nil {
			t.Fatal(err)
		}
		docs, cursor := page.GetDocuments(), page.GetCursor()
		for {
			for _, d := range docs {
				got.add(d.GetBson())
			}
			if cursor == "" {
				break
			}
			next, err := cursors.NextPage(t.Context(),
				&mooringv1.NextPageRequest{Cursor: cursor, BatchSize: new(int32(3000))})
			if err != nil {
				t.Fatal(err)
			}
			docs, cursor = next.GetDocuments(), next.GetCursor()
		}
		got.done()
	})
	t.Run("REST pages, canonical JSON", func(t *testing.T) {
		got := newCollector(t, sent)
		path, body := gatewaytest.Documents(db, collection, "find"), `{"batchSize": 3000}`
		for path != "" {
			resp := g.Post(t, path, body,
				gatewaytest.Header{Name: "Accept", Value: "application/ejson"})
			var page struct {
				Documents []json.RawMessage
				Cursor    string
			}
			if err := json.Unmarshal(resp.Body, &page); err != nil || resp.Status != 200 {
				t.Fatalf("%d %.300s, %v", resp.Status, resp.Body, err)
			}
			for _, d := range page.Documents {
				got.add(parseJSON(t, d))
			}
			path, body = nextPage(page.Cursor)
		}
		got.done()
	})
	t.Run("REST pages, BSON", func(t *testing.T) {
		got := newCollector(t, sent)
		path, body := gatewaytest.Documents(db, collection, "find"), `{"batchSize": 3000}`
		for path != "" {
			resp := g.Post(t, path, body,
				gatewaytest.Header{Name: "Accept", Value: "application/bson"})
			if resp.Status != 200 || resp.Header.Get("Content-Type") != "application/bson" {
				t.Fatalf("%d %s %.300s", resp.Status, resp.Header.Get("Content-Type"), resp.Body)
			}
			for r := bytes.NewReader(resp.Body); r.Len() > 0; {
				d, err := bson.ReadDocument(r)
				if err != nil {
					t.Fatal(err)
				}
				got.add(d)
			}
			path, body = nextPage(resp.Header.Get("Mooring-Cursor"))
		}
		got.done()
	})
	t.Run("NDJSON stream", func(t *testing.T) {
		got := newCollector(t, sent)
		resp := g.Open(t, t.Context(), "POST", gatewaytest.Documents(db, collection, "streamFind"),
			`{}`,
			gatewaytest.Header{Name: "Accept", Value: "application/x-ndjson;profile=canonical"})
		defer resp.Body.Close()
		end := readLines(t, resp.Body, func(d json.RawMessage) { got.add(parseJSON(t, d)) })
		if end.End == nil {
			t.Fatalf("the stream (status %s) ends with %+v", resp.Status, end)
		}
		got.done()
	})
}

// nextPage gives the request for the page after a cursor; none, when it is empty.
func nextPage(cursor string) (path, body string) {
	if cursor == "" {
		return "", ""
	}
	return "/v1/cursors:next", fmt.Sprintf(`{"cursor": %q, "batchSize": 3000}`, cursor)
}

// line is one line of an NDJSON stream: exactly one of its fields is there.
type line struct {
	Document json.RawMessage
	End      json.RawMessage
	Error    *struct{ Status, Reason, Message string }
}

// parseLine reads a line. Most lines are documents, and those are only cut: a client under -race
// must not be what a test waits for.
func parseLine(text []byte) (line, error) {
	if rest, ok := bytes.CutPrefix(text, []byte(`{"document":`)); ok {
		if doc, ok := bytes.CutSuffix(rest, []byte("}")); ok {
			return line{Document: doc}, nil
		}
	}
	var l line
	return l, json.Unmarshal(text, &l)
}

// readLines reads a stream to its last line, which it gives.
func readLines(t testing.TB, r io.Reader, each func(json.RawMessage)) line {
	t.Helper()
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 64<<10), 32<<20)
	var last line
	for scanner.Scan() {
		var err error
		if last, err = parseLine(scanner.Bytes()); err != nil {
			t.Fatalf("a line %.200s: %v", scanner.Bytes(), err)
		}
		if last.Document != nil {
			each(last.Document)
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return last
}

// parseJSON reads canonical Extended JSON with the official driver.
func parseJSON(t testing.TB, text []byte) bson.Raw {
	t.Helper()
	var doc bson.Raw
	if err := bson.UnmarshalExtJSON(text, true, &doc); err != nil {
		t.Fatalf("%v in %.300s", err, text)
	}
	return doc
}

// collector checks that every document comes once and unchanged; the order is the server's.
type collector struct {
	t    testing.TB
	want []bson.Raw
	seen []bool
	n    int
	bad  int
}

func newCollector(t testing.TB, want []bson.Raw) *collector {
	return &collector{t: t, want: want, seen: make([]bool, len(want))}
}

func (c *collector) add(doc bson.Raw) {
	id, ok := doc.Lookup("_id").Int32OK()
	switch {
	case !ok || int(id) >= len(c.want):
		c.complain("a document with the _id %v", doc.Lookup("_id"))
	case c.seen[id]:
		c.complain("document %d comes twice", id)
	case !bytes.Equal(doc, c.want[id]):
		c.complain("document %d is %v, want %v", id, doc, c.want[id])
	default:
		c.seen[id] = true
	}
	c.n++
}

func (c *collector) complain(format string, args ...any) {
	c.t.Helper()
	if c.bad++; c.bad > 5 {
		c.t.Fatal("and so on")
	}
	c.t.Errorf(format, args...)
}

func (c *collector) done() {
	c.t.Helper()
	if c.n != len(c.want) {
		c.t.Errorf("%d documents, want %d", c.n, len(c.want))
	}
}

// bulkDocument is a document whose content and length depend on its number, of types that every
// server here holds.
func bulkDocument(i int32) bson.D {
	random := rand.New(rand.NewPCG(7, uint64(i)))
	noise := make([]byte, random.IntN(40))
	for j := range noise {
		noise[j] = byte(random.Uint32())
	}
	return fields(
		"_id", i,
		"big", int64(1)<<53+int64(i),
		"small64", int64(i),
		"double", float64(i)/8,
		"text", strings.Repeat("é\"\\\u2028\t", random.IntN(20)),
		"binary", bson.Binary{Subtype: 0x80, Data: noise},
		"id", bson.ObjectID{byte(i), byte(i >> 8), 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
		"date", bson.NewDateTimeFromTime(time.UnixMilli(1_700_000_000_000+int64(i))),
		"true", i%2 == 0,
		"null", nil,
		"timestamp", bson.Timestamp{T: uint32(i), I: 1},
		"nested",
		fields("a", fields("b", int32(1), "c", bson.A{int32(1), "two", fields("three", 3.5)})),
		"empty", fields(),
		"none", bson.A{},
	)
}
