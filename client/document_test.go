package client_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

func (g *gateway) GetDocument(
	ctx context.Context, r *mooringv1.GetDocumentRequest,
) (*mooringv1.GetDocumentResponse, error) {
	g.id = r.GetId()
	resp := &mooringv1.GetDocumentResponse{Document: doc(7), Etag: proto.String("E")}
	return resp, g.called(ctx, "Get")
}

func (g *gateway) PutDocument(
	ctx context.Context, r *mooringv1.PutDocumentRequest,
) (*mooringv1.PutDocumentResponse, error) {
	g.id = r.GetId()
	document := r.GetReplacement()
	if g.large != nil {
		document = g.large
	}
	return &mooringv1.PutDocumentResponse{
		Document: document, Etag: proto.String("F"),
		WriteConcernError: &mooringv1.WriteConcernError{Code: 64},
	}, g.called(ctx, "Put "+strings.Join(r.GetIfMatch(), " "))
}

func (g *gateway) Distinct(
	ctx context.Context, r *mooringv1.DistinctRequest,
) (*mooringv1.DistinctResponse, error) {
	one := bson.NewBuilder(nil).Int32("v", 1).Finish()
	return &mooringv1.DistinctResponse{Values: []*mooringv1.Value{
		{Encoding: &mooringv1.Value_Bson{Bson: one}},
	}}, g.called(ctx, "Distinct "+r.GetFieldName())
}

func (g *gateway) RunCommand(
	ctx context.Context, r *mooringv1.RunCommandRequest,
) (*mooringv1.RunCommandResponse, error) {
	return &mooringv1.RunCommandResponse{Reply: doc(9)},
		g.called(ctx, "RunCommand "+r.GetDatabase())
}

// TestDocument reads and replaces one document by its ETag.
func TestDocument(t *testing.T) {
	g := &gateway{}
	orders := dial(t, g, client.Options{})
	got, err := orders.Get(t.Context(), client.JSON(`"a"`))
	if err != nil || got.ETag != "E" || !got.Document.Has("_id") || g.id.GetJson() != `"a"` {
		t.Errorf("Get = %+v, %v of %v", got, err, g.id)
	}
	id := bson.Int32Value(7)
	put, err := orders.Put(t.Context(), id, got.Document, func(r *mooringv1.PutDocumentRequest) {
		r.IfMatch = []string{got.ETag}
	})
	if err != nil || put.ETag != "F" || put.WriteConcernError.GetCode() != 64 ||
		string(put.Document) != string(got.Document) {
		t.Errorf("Put = %+v, %v", put, err)
	}
	if id, ok := bson.Raw(g.id.GetBson()).Lookup("v"); !ok || !id.Equal(bson.Int32Value(7)) {
		t.Errorf("the _id is %v", g.id)
	}
	g.failures = []error{failed(codes.FailedPrecondition, "PreconditionFailed", "never", "412")}
	put, err = orders.Put(t.Context(), id, got.Document, func(r *mooringv1.PutDocumentRequest) {
		r.IfMatch = []string{"old"}
	})
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != "PreconditionFailed" ||
		put.ETag != "" {
		t.Errorf("Put of an old one = %+v, %v", put, err)
	}
	if want := []string{"Get", "Put E", "Put old"}; !slices.Equal(g.calls, want) {
		t.Errorf("calls %q, want %q", g.calls, want)
	}
	if _, err := orders.Get(t.Context(), 7); err == nil {
		t.Error("Get takes an int without Marshal")
	}
}

// TestLargeDocuments receives documents beyond the 4 MiB that a connection allows by default.
func TestLargeDocuments(t *testing.T) {
	large := bson.NewBuilder(nil).Int32("_id", 1).String("a", strings.Repeat("a", 5<<20)).Finish()
	g := &gateway{large: &mooringv1.Document{
		Encoding: &mooringv1.Document_Bson{Bson: large},
	}}
	cc := connect(t, g)
	c := client.New(cc, client.Options{})
	orders := client.In[bson.Raw](c, "shop", "orders")
	put, err := orders.Put(t.Context(), bson.Int32Value(1), empty)
	if err != nil || len(put.Document) != len(large) {
		t.Errorf("Put = %d bytes, %v", len(put.Document), err)
	}
	resources := mooringv1.NewDocumentResourceServiceClient(cc)
	_, err = client.Call(t.Context(), c, resources.PutDocument, &mooringv1.PutDocumentRequest{})
	if err != nil {
		t.Errorf("Call: %v", err)
	}
	for name, documents := range map[string]iter.Seq2[bson.Raw, error]{
		"Stream": orders.Stream(t.Context(), nil), "Watch": orders.Watch(t.Context()),
	} {
		if got, err := ids(documents, 1); err != nil || len(got) != 1 {
			t.Errorf("%s yields %v, %v", name, got, err)
		}
	}
	g.lives = [][]*mooringv1.LiveResponse{
		{{Kind: string(client.LiveAdded), Documents: []*mooringv1.Document{g.large}}},
	}
	for live, err := range orders.Live(t.Context(), nil) {
		if err != nil || len(live.Document) != len(large) {
			t.Errorf("Live yields %d bytes, %v", len(live.Document), err)
		}
		break
	}
}

// TestValues decodes what is not a document of the collection.
func TestValues(t *testing.T) {
	g := &gateway{}
	orders := dial(t, g, client.Options{})
	values, err := client.Distinct[bson.Value](t.Context(), orders, "a", nil)
	if err != nil || len(values) != 1 || !values[0].Equal(bson.Int32Value(1)) {
		t.Errorf("Distinct = %v, %v", values, err)
	}
	if _, err := client.Distinct[int](t.Context(), orders, "a", nil); err == nil {
		t.Error("Distinct makes an int without Unmarshal")
	}
	cc := connect(t, g)
	c := client.New(cc, client.Options{Token: "secret"})
	reply, err := client.RunCommand[bson.Raw](t.Context(), c, "shop", client.JSON(`{"ping": 1}`))
	if err != nil || !reply.Has("_id") || g.calls[len(g.calls)-1] != "RunCommand shop" {
		t.Errorf("RunCommand = %v, %v", reply, err)
	}
	g.failures = []error{unavailable}
	commands := mooringv1.NewCommandServiceClient(cc)
	request := &mooringv1.RunCommandRequest{Database: "other"}
	r, err := client.Call(t.Context(), c, commands.RunCommand, request)
	if err != nil || r.GetReply() == nil {
		t.Errorf("Call = %v, %v", r, err)
	}
	if token := g.metadata.Get("authorization"); !slices.Equal(token, []string{"Bearer secret"}) {
		t.Errorf("Call sends %q", token)
	}
}

// TestNoDocuments: a document that cannot be written ends a call before it is made.
func TestNoDocuments(t *testing.T) {
	odd := errors.New("odd")
	g := &gateway{}
	marshal := func(any) ([]byte, error) { return nil, odd }
	c := client.New(connect(t, g), client.Options{Marshal: marshal})
	things := client.In[struct{}](c, "shop", "things")
	none, ctx := struct{}{}, t.Context()
	for name, call := range map[string]func() error{
		"InsertOne":         func() error { _, err := things.InsertOne(ctx, none); return err },
		"InsertMany":        func() error { _, err := things.InsertMany(ctx, []struct{}{none}); return err },
		"UpdateOne":         func() error { _, err := things.UpdateOne(ctx, nil, none); return err },
		"UpdateMany":        func() error { _, err := things.UpdateMany(ctx, none, nil); return err },
		"ReplaceOne":        func() error { _, err := things.ReplaceOne(ctx, nil, none); return err },
		"DeleteOne":         func() error { _, err := things.DeleteOne(ctx, none); return err },
		"DeleteMany":        func() error { _, err := things.DeleteMany(ctx, none); return err },
		"FindOneAndReplace": func() error { _, err := things.FindOneAndReplace(ctx, nil, none); return err },
		"FindOneAndDelete":  func() error { _, err := things.FindOneAndDelete(ctx, none); return err },
		"Get":               func() error { _, err := things.Get(ctx, 7); return err },
		"Put":               func() error { _, err := things.Put(ctx, client.JSON("7"), none); return err },
		"Patch":             func() error { _, err := things.Patch(ctx, client.JSON("7"), none); return err },
		"Delete":            func() error { return things.Delete(ctx, 7) },
	} {
		if err := call(); !errors.Is(err, odd) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(g.calls) != 0 {
		t.Errorf("the gateway gets the calls %q", g.calls)
	}
}
