package request_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/selection"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

func json(text string) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: text}}
}

func native(raw bson.Raw) *mooringv1.Document { return payload.NewDocument(raw) }

func value(text string) *mooringv1.Value {
	return &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: text}}
}

// unknown returns m with a field that this version does not know.
func unknown[M proto.Message](m M) M {
	m.ProtoReflect().
		SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 4000, protowire.VarintType), 1))
	return m
}

func with(ctx context.Context, kv ...string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs(kv...))
}

// in returns the context of a call that asks for an encoding.
func in(ctx context.Context, enc payload.Encoding) context.Context {
	return &call.Context{Context: ctx, Call: call.Call{Encoding: enc}}
}

// read returns a Reader of an empty request. Tests give the fields to the Reader's methods.
func read(t *testing.T) *request.Reader {
	t.Helper()
	return request.Read(in(t.Context(), payload.BSON), &mooringv1.FindRequest{}, nil)
}

// refusal returns "reason field" of the error that a client gets, or "" for no error.
func refusal(err error) string {
	if err == nil {
		return ""
	}
	e := rpcerr.HTTP(err).Body.GetError()
	return e.GetReason() + " " + e.GetField()
}

// TestRead checks which requests are refused before any field is read.
func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		req       *mooringv1.FindRequest
		statement *int32
		metadata  []string
		want      string
	}{
		"nothing":         {&mooringv1.FindRequest{}, nil, nil, ""},
		"empty tokens":    {&mooringv1.FindRequest{Session: new(""), Transaction: new("")}, nil, nil, ""},
		"session":         {&mooringv1.FindRequest{Session: new("s")}, nil, nil, "Unimplemented session"},
		"transaction":     {&mooringv1.FindRequest{Transaction: new("t")}, nil, nil, "Unimplemented transaction"},
		"statement":       {&mooringv1.FindRequest{}, new(int32(0)), nil, "InvalidArgument statement"},
		"its metadata":    {&mooringv1.FindRequest{}, nil, []string{"mooring-session", "s"}, "Unimplemented session"},
		"and that":        {&mooringv1.FindRequest{}, nil, []string{"mooring-transaction", "t"}, "Unimplemented mooring-transaction"},
		"idempotency key": {&mooringv1.FindRequest{}, nil, []string{"idempotency-key", "k"}, "IdempotencyKeyUnsupported idempotency-key"},
		"unknown field":   {unknown(&mooringv1.FindRequest{}), nil, nil, "InvalidArgument request"},
		"the first counts": {
			unknown(&mooringv1.FindRequest{Session: new("s")}), nil, []string{"idempotency-key", "k"}, "InvalidArgument request",
		},
	} {
		ctx := in(t.Context(), payload.BSON)
		if c.metadata != nil {
			ctx = with(ctx, c.metadata...)
		}
		if got := refusal(request.Read(ctx, c.req, c.statement).Err()); got != c.want {
			t.Errorf("Read, %s: %q, want %q", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		req      proto.Message
		metadata []string
		want     string
	}{
		"nothing":       {&mooringv1.ListPoolsRequest{}, nil, ""},
		"unknown field": {unknown(&mooringv1.ListPoolsRequest{}), nil, "InvalidArgument request"},
		"metadata":      {&mooringv1.ListPoolsRequest{}, []string{"mooring-session", "s"}, "InvalidArgument mooring-session"},
	} {
		ctx := in(t.Context(), payload.BSON)
		if c.metadata != nil {
			ctx = with(ctx, c.metadata...)
		}
		if got := refusal(request.Plain(ctx, c.req)); got != c.want {
			t.Errorf("Plain, %s: %q, want %q", name, got, c.want)
		}
	}
}

// TestRefusals gives each method a field that it must refuse.
func TestRefusals(t *testing.T) {
	bad := native(bson.Raw{5, 0, 0, 0, 1})
	for _, c := range []struct {
		name, want string
		read       func(*request.Reader)
	}{
		{"document", "MalformedDocument f", func(r *request.Reader) { r.Document("f", bad) }},
		{"document without a form", "InvalidArgument f", func(r *request.Reader) { r.Document("f", &mooringv1.Document{}) }},
		{"document with an unknown field", "InvalidArgument f", func(r *request.Reader) { r.Document("f", unknown(json("{}"))) }},
		{"no required document", "InvalidArgument f", func(r *request.Reader) { r.Required("f", nil) }},
		{"required document", "MalformedDocument f", func(r *request.Reader) { r.Required("f", bad) }},
		{"keys", "MalformedDocument f", func(r *request.Reader) { r.Keys("f", bad) }},
		{"keys with an unknown field", "InvalidArgument f", func(r *request.Reader) { r.Keys("f", unknown(json("{}"))) }},
		{"documents", "MalformedDocument f.1", func(r *request.Reader) { r.Documents("f", []*mooringv1.Document{json("{}"), bad}) }},
		{"documents with nothing", "InvalidArgument f.0", func(r *request.Reader) { r.Documents("f", []*mooringv1.Document{nil}) }},
		{"documents with an unknown field", "InvalidArgument f", func(r *request.Reader) { r.Documents("f", []*mooringv1.Document{unknown(json("{}"))}) }},
		{"array", "MalformedDocument f.0", func(r *request.Reader) { r.Array("f", []*mooringv1.Document{bad}) }},
		{"value", "MalformedDocument f", func(r *request.Reader) { r.Value("f", value("x")) }},
		{"value without a form", "InvalidArgument f", func(r *request.Reader) { r.Value("f", &mooringv1.Value{}) }},
		{"value with an unknown field", "InvalidArgument f", func(r *request.Reader) { r.Value("f", unknown(value("1"))) }},
		{"hint", "InvalidArgument hint", func(r *request.Reader) { r.Hint("hint", &mooringv1.Hint{}) }},
		{"hint with an unknown field", "InvalidArgument hint", func(r *request.Reader) { r.Hint("hint", unknown(&mooringv1.Hint{Kind: &mooringv1.Hint_Name{}})) }},
		{"hint's keys", "InvalidArgument hint", func(r *request.Reader) { r.Hint("hint", &mooringv1.Hint{Kind: &mooringv1.Hint_Keys{}}) }},
		{"no update", "InvalidArgument update", func(r *request.Reader) { r.Update("update", nil) }},
		{"update", "InvalidArgument update", func(r *request.Reader) { r.Update("update", &mooringv1.Update{}) }},
		{"update with an unknown field", "InvalidArgument update", func(r *request.Reader) {
			r.Update("update", unknown(&mooringv1.Update{Kind: &mooringv1.Update_Pipeline{}}))
		}},
		{"pipeline with an unknown field", "InvalidArgument update", func(r *request.Reader) {
			r.Update("update", &mooringv1.Update{
				Kind: &mooringv1.Update_Pipeline{Pipeline: unknown(&mooringv1.Pipeline{})},
			})
		}},
		{"update's operators", "InvalidArgument update", func(r *request.Reader) {
			r.Update("update", &mooringv1.Update{Kind: &mooringv1.Update_Operators{}})
		}},
		{"read preference", "InvalidArgument readPreference", func(r *request.Reader) { r.ReadPreference(unknown(&mooringv1.ReadPreference{})) }},
		{"mode in another case", "InvalidArgument readPreference.mode", func(r *request.Reader) { r.ReadPreference(&mooringv1.ReadPreference{Mode: new("Secondary")}) }},
		{"mode", "InvalidArgument readPreference.mode", func(r *request.Reader) { r.ReadPreference(&mooringv1.ReadPreference{Mode: new("near")}) }},
		{"tags", "InvalidArgument readPreference.tags", func(r *request.Reader) {
			r.ReadPreference(&mooringv1.ReadPreference{
				Tags: []*mooringv1.TagSet{unknown(&mooringv1.TagSet{})},
			})
		}},
		{"read concern", "InvalidArgument readConcern", func(r *request.Reader) { r.ReadConcern(unknown(&mooringv1.ReadConcern{})) }},
		{"write concern", "InvalidArgument writeConcern", func(r *request.Reader) { r.WriteConcern(unknown(&mooringv1.WriteConcern{})) }},
		{"w", "InvalidArgument writeConcern.w", func(r *request.Reader) { r.WriteConcern(&mooringv1.WriteConcern{W: &mooringv1.W{}}) }},
		{"w with an unknown field", "InvalidArgument writeConcern.w", func(r *request.Reader) {
			r.WriteConcern(&mooringv1.WriteConcern{
				W: unknown(&mooringv1.W{Kind: &mooringv1.W_Nodes{}}),
			})
		}},
		{"empty w", "InvalidArgument writeConcern.w", func(r *request.Reader) {
			r.WriteConcern(&mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Tag{}}})
		}},
		{"return document", "InvalidArgument returnDocument", func(r *request.Reader) { r.ReturnDocument(new("")) }},
		{"cursor type", "InvalidArgument cursorType", func(r *request.Reader) { r.CursorType(new("")) }},
		{"batch size", "InvalidArgument batchSize", func(r *request.Reader) { r.BatchSize(new(int32(-1))) }},
		{"number", "InvalidArgument f", func(r *request.Reader) { r.NonNegative("f", new(int64(-1))) }},
		{"max time", "InvalidArgument maxTimeMS", func(r *request.Reader) { r.MaxTimeMS(new(int64(-1))) }},
		{"max await time", "InvalidArgument maxAwaitTimeMS", func(r *request.Reader) { r.MaxAwaitTimeMS(new(int64(-1))) }},
		{"no cursor", "InvalidArgument cursor", func(r *request.Reader) { r.Cursor("") }},
	} {
		r := read(t)
		c.read(r)
		if got := refusal(r.Err()); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		first := r.Err()
		r.Refuse("other", "is wrong, too")
		if !errors.Is(r.Err(), first) {
			t.Errorf("%s: the first error did not stay", c.name)
		}
	}
}

// TestUnset checks that each method returns nothing for an unset field, and refuses nothing.
func TestUnset(t *testing.T) {
	r := read(t)
	for name, unset := range map[string]bool{
		"Document":       r.Document("f", nil) == nil,
		"Keys":           r.Keys("f", nil) == nil,
		"Documents":      r.Documents("f", nil) == nil,
		"Array":          r.Array("f", nil) == nil,
		"Value":          r.Value("f", nil).IsZero(),
		"Hint":           r.Hint("hint", nil).IsZero(),
		"ReadPreference": r.ReadPreference(nil) == nil,
		"ReadConcern":    r.ReadConcern(nil) == nil,
		"WriteConcern":   r.WriteConcern(nil) == nil,
		"ReturnDocument": r.ReturnDocument(nil) == client.ReturnUnset,
		"CursorType":     r.CursorType(nil) == client.NonTailable,
		"BatchSize":      r.BatchSize(nil) == nil,
		"NonNegative":    r.NonNegative("f", nil) == nil,
		"MaxTimeMS":      r.MaxTimeMS(nil) == nil,
		"MaxAwaitTimeMS": r.MaxAwaitTimeMS(nil) == nil,
	} {
		if !unset {
			t.Errorf("%s of nothing is something", name)
		}
	}
	if r.Err() != nil {
		t.Error(r.Err())
	}
}

// TestValues checks the result of each method for a field that is set.
func TestValues(t *testing.T) {
	r := read(t)
	one := bson.NewBuilder(nil).Int32("a", 1).Finish()
	same := func(name string, got, want []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			t.Errorf("%s = %x, want %x", name, got, want)
		}
	}
	same("Document", r.Document("f", json(`{"a": 1}`)), one)
	same("Required", r.Required("f", native(one)), one)
	same("Keys of pairs", r.Keys("f", json(`[["a", 1]]`)), one)
	same("Array", r.Array("f", []*mooringv1.Document{native(one), native(one)}),
		bson.Raw(bson.NewBuilder(nil).Document("0", one).Document("1", one).Finish()))
	same("Hint's keys", r.Hint("hint", &mooringv1.Hint{
		Kind: &mooringv1.Hint_Keys{Keys: json(`[["a", 1]]`)},
	}).Data, one)
	if name, _ := r.Hint("hint", &mooringv1.Hint{Kind: &mooringv1.Hint_Name{Name: "a_1"}}).
		Str(); name != "a_1" {
		t.Errorf("Hint = %q", name)
	}
	same("Update", r.Update("update", &mooringv1.Update{
		Kind: &mooringv1.Update_Operators{Operators: native(one)},
	}).Data, one)
	pipeline := &mooringv1.Update{
		Kind: &mooringv1.Update_Pipeline{
			Pipeline: &mooringv1.Pipeline{Stages: []*mooringv1.Document{native(one)}},
		},
	}
	if v := r.Update("update", pipeline); v.Type != bson.TypeArray {
		t.Errorf("Update of a pipeline = %v", v)
	}
	rp := r.ReadPreference(&mooringv1.ReadPreference{
		Mode: new("nearest"), MaxStalenessSeconds: new(int64(120)),
		Tags: []*mooringv1.TagSet{{Tags: map[string]string{"dc": "east"}}, {}},
	})
	if rp.Mode != selection.Nearest || *rp.MaxStalenessSeconds != 120 || len(rp.TagSets) != 2 ||
		!rp.TagSets[0].ContainsAll(description.NewTagSet(description.Tag{
			Name:  "dc",
			Value: "east",
		})) {
		t.Errorf("ReadPreference = %+v", rp)
	}
	if rc := r.ReadConcern(&mooringv1.ReadConcern{Level: new("majority")}); rc.Level != "majority" {
		t.Errorf("ReadConcern = %+v", rc)
	}
	wc := r.WriteConcern(&mooringv1.WriteConcern{
		W: &mooringv1.W{Kind: &mooringv1.W_Nodes{Nodes: 0}}, J: new(true),
		WtimeoutMs: new(int64(5)),
	})
	if wc.Nodes == nil || *wc.Nodes != 0 || !*wc.Journal || *wc.WTimeoutMS != 5 || wc.Tag != "" {
		t.Errorf("WriteConcern = %+v", wc)
	}
	if wc := r.WriteConcern(&mooringv1.WriteConcern{
		W: &mooringv1.W{Kind: &mooringv1.W_Tag{Tag: "majority"}},
	}); wc.Tag != "majority" || wc.Nodes != nil {
		t.Errorf("WriteConcern = %+v", wc)
	}
	if wc := r.WriteConcern(&mooringv1.WriteConcern{}); wc == nil || wc.Nodes != nil ||
		wc.Tag != "" || wc.Journal != nil {
		t.Errorf("an empty WriteConcern = %+v", wc)
	}
	for text, want := range map[string]client.ReturnDocument{
		"before": client.ReturnBefore, "after": client.ReturnAfter,
	} {
		if got := r.ReturnDocument(&text); got != want {
			t.Errorf("ReturnDocument(%s) = %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]client.CursorType{
		"nonTailable": client.NonTailable, "tailable": client.Tailable, "tailableAwait": client.TailableAwait,
	} {
		if got := r.CursorType(&text); got != want {
			t.Errorf("CursorType(%s) = %v, want %v", text, got, want)
		}
	}
	if r.Cursor("token") != "token" {
		t.Error("Cursor changes a token")
	}
	if r.Err() != nil {
		t.Error(r.Err())
	}
}

// TestCopies checks that options that are used after a request has ended do not reference it.
func TestCopies(t *testing.T) {
	r := read(t)
	size, wait := new(int32(0)), new(int64(0))
	for name, shared := range map[string]bool{
		"BatchSize": r.BatchSize(size) == size, "MaxAwaitTimeMS": r.MaxAwaitTimeMS(wait) == wait,
	} {
		if shared {
			t.Errorf("%s is the request's own", name)
		}
	}
	v := payload.NewValue(bson.StringValue("note"))
	comment := r.Value("comment", v)
	clear(v.GetBson())
	if text, _ := comment.Str(); text != "note" || r.Err() != nil {
		t.Errorf("Value = %q, %v: it is a view on the request", text, r.Err())
	}
}

// TestBatchesInTurn checks that a message of the native form stays as it is until the second one
// after it is sent, that later ones allocate nothing, and that very long ones are not kept.
func TestBatchesInTurn(t *testing.T) {
	numbered := func(from, n int) (docs []bson.Raw) {
		for i := range n {
			docs = append(docs, bson.NewBuilder(nil).Int32("n", int32(from+i)).Finish())
		}
		return docs
	}
	var sent [][]*mooringv1.Document
	send := request.Read(in(t.Context(), payload.BSON), &mooringv1.FindRequest{}, nil).Batches(1,
		func(m []*mooringv1.Document) error {
			sent = append(sent, m)
			return nil
		})
	for i, n := range []int{3, 5, 0, 2, 4, 3000, 1} {
		docs := numbered(10*i, n)
		if err := send(docs); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			continue
		}
		for back := range min(3, len(sent)) {
			for at, m := range sent[len(sent)-1-back] {
				if got := bson.Raw(m.GetBson()); back == 0 && !bytes.Equal(got, docs[at]) ||
					len(got) == 0 {
					t.Errorf("message %d, %d later: document %d is %v", i, back, at, got)
				}
			}
		}
		if len(sent) > 2 && n < 3000 {
			now, before := sent[len(sent)-1][0], sent[len(sent)-3:len(sent)-1]
			for _, m := range before {
				if m[0] == now {
					t.Errorf("message %d is in the memory of one of the two before", i)
				}
			}
		}
	}
	docs := numbered(0, 100)
	_ = send(docs)
	_ = send(docs)
	_ = send(docs)
	sent = make([][]*mooringv1.Document, 0, 200)
	if n := testing.AllocsPerRun(100, func() { _ = send(docs) }); n != 0 {
		t.Errorf("a message makes %v allocations, want none", n)
	}
}

// TestBatches checks that messages are split by the size of their JSON, and not split as BSON.
func TestBatches(t *testing.T) {
	// 608 bytes of JSON
	control := bson.NewBuilder(nil).String("a", strings.Repeat("\x01", 100)).Finish()
	docs := slices.Repeat([]bson.Raw{control}, 10)
	bad := bson.NewBuilder(nil).String("a", "\xff").Finish()
	for _, c := range []struct {
		encoding payload.Encoding
		docs     []bson.Raw
		bytes    int
		want     string
	}{
		{payload.BSON, docs, 700, "[10]"},
		{payload.JSON, docs, 2000, "[3 3 3 1]"},
		{payload.CanonicalJSON, docs, 700, "[1 1 1 1 1 1 1 1 1 1]"},
		{payload.JSON, docs, 1, "[1 1 1 1 1 1 1 1 1 1]"},
		{payload.JSON, docs, 1 << 20, "[10]"},
		{payload.JSON, append(slices.Clone(docs[:4]), bad, control), 2000, "[3 1]InvalidUTF8 "},
		{payload.JSON, []bson.Raw{bad}, 2000, "[]InvalidUTF8 "},
		{payload.BSON, []bson.Raw{bad}, 2000, "[1]"},
		{payload.JSON, nil, 2000, "[]"},
	} {
		ctx := in(t.Context(), c.encoding)
		sizes := []int{}
		err := request.Read(ctx, &mooringv1.FindRequest{}, nil).Batches(c.bytes, func(
			m []*mooringv1.Document,
		) error {
			sizes = append(sizes, len(m))
			return nil
		})(c.docs)
		if got := fmt.Sprint(sizes) + refusal(err); got != c.want {
			t.Errorf("encoding %v, %d bytes: %s, want %s", c.encoding, c.bytes, got, c.want)
		}
	}
	gone := errors.New("gone")
	calls := 0
	err := request.Read(in(t.Context(), payload.JSON), &mooringv1.FindRequest{}, nil).
		Batches(1, func(
			[]*mooringv1.Document,
		) error {
			calls++
			return gone
		})(docs)
	if !errors.Is(err, gone) || calls != 1 {
		t.Errorf("after a failure %d messages were sent, %v", calls, err)
	}
}

// TestBuilt checks that BSON is validated unless the caller within the process has built it.
func TestBuilt(t *testing.T) {
	doc, v := native(bson.Raw{5, 0, 0, 0, 1}), payload.NewValue(bson.StringValue("\xff"))
	for name, read := range map[string]func(*request.Reader){
		"Document":  func(r *request.Reader) { r.Document("filter", doc) },
		"Keys":      func(r *request.Reader) { r.Keys("sort", doc) },
		"Documents": func(r *request.Reader) { r.Documents("documents", []*mooringv1.Document{doc}) },
		"Value":     func(r *request.Reader) { r.Value("comment", v) },
	} {
		for _, built := range []bool{false, true} {
			ctx := &call.Context{
				Context: t.Context(), Call: call.Call{Local: call.Local{Built: built}},
			}
			r := request.Read(ctx, &mooringv1.FindRequest{}, nil)
			if read(r); (r.Err() == nil) != built {
				t.Errorf("%s, built %v: %v", name, built, r.Err())
			}
		}
	}
}

// TestInflation checks the forms of a response: BSON, JSON that the caller makes of BSON, and the
// JSON of gRPC, which is larger.
func TestInflation(t *testing.T) {
	for _, test := range []struct {
		call call.Call
		want int
	}{
		{call.Call{}, 0},
		{call.Call{Local: call.Local{Text: true}}, 1},
		{call.Call{Encoding: payload.JSON}, 3},
		{call.Call{Local: call.Local{Text: true}, Encoding: payload.JSON}, 3},
		{call.Call{Encoding: payload.CanonicalJSON}, 5},
	} {
		ctx := &call.Context{Context: t.Context(), Call: test.call}
		if got := request.Read(ctx, &mooringv1.FindRequest{}, nil).Inflation(); got != test.want {
			t.Errorf("Inflation() of %+v = %d, want %d", test.call, got, test.want)
		}
	}
}
