package request_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/request"
)

// panicOf returns the value that f panics with, or "" if it does not panic.
func panicOf(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

type estimate = client.EstimatedDocumentCountOptions

func common(o *estimate) *client.Common { return &o.Common }

func maxTime() request.Row[estimate] {
	return request.NonNegative("max_time_ms", func(o *estimate) **int64 { return &o.MaxTimeMS })
}

// TestTablesAreComplete checks that NewTable finds a field without a row and a row without a field.
func TestTablesAreComplete(t *testing.T) {
	of := []proto.Message{&mooringv1.EstimatedDocumentCountRequest{}}
	for _, c := range []struct {
		name, want string
		make       func()
	}{
		{"complete", "", func() { request.NewTable(of, nil, request.CommonRead(common), request.Rows(maxTime())) }},
		{"a field without a row", "mooring.v1.EstimatedDocumentCountRequest.max_time_ms", func() {
			request.NewTable(of, nil, request.CommonRead(common))
		}},
		{"that the handler reads", "", func() {
			request.NewTable(of, []protoreflect.Name{"max_time_ms"}, request.CommonRead(common))
		}},
		{"a row without a field", "no request has the field hint", func() {
			request.NewTable(of, nil, request.CommonRead(common), request.Rows(maxTime(),
				request.Value("hint", func(o *estimate) *bson.Value { return &o.Comment })))
		}},
	} {
		if got := panicOf(c.make); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	table := request.NewTable(of, nil, request.CommonRead(common), request.Rows(maxTime()))
	r := request.Read(in(t.Context(), payload.BSON), &mooringv1.FindRequest{}, nil)
	if got := panicOf(func() {
		table.Read(r, &mooringv1.FindRequest{})
	}); !strings.Contains(got, "mooring.v1.FindRequest") {
		t.Errorf("a table of another request: %q", got)
	}
}

// TestTable reads a request with each field, with none, and with one that is invalid.
func TestTable(t *testing.T) {
	table := request.NewTable([]proto.Message{&mooringv1.EstimatedDocumentCountRequest{}}, nil,
		request.CommonRead(common), request.Rows(maxTime()))
	read := func(req *mooringv1.EstimatedDocumentCountRequest) (estimate, error) {
		r := request.Read(in(t.Context(), payload.BSON), req, nil)
		return table.Read(r, req), r.Err()
	}
	opt, err := read(&mooringv1.EstimatedDocumentCountRequest{
		Comment: value(`"c"`), MaxTimeMs: new(int64(0)),
		ReadPreference: &mooringv1.ReadPreference{Mode: new("nearest")},
		ReadConcern:    &mooringv1.ReadConcern{Level: new("local")}, Options: json(`{"a": 1}`),
	})
	comment, _ := opt.Comment.Str()
	if err != nil || comment != "c" || opt.MaxTimeMS == nil || *opt.MaxTimeMS != 0 ||
		opt.ReadPreference == nil ||
		opt.ReadConcern.Level != "local" || !opt.Extra.Has("a") {
		t.Errorf("every option: %+v, %v", opt, err)
	}
	opt, err = read(&mooringv1.EstimatedDocumentCountRequest{})
	if err != nil || !opt.Comment.IsZero() || opt.MaxTimeMS != nil || opt.ReadPreference != nil ||
		opt.ReadConcern != nil || opt.Extra != nil {
		t.Errorf("no option: %+v, %v", opt, err)
	}
	for want, req := range map[string]*mooringv1.EstimatedDocumentCountRequest{
		"InvalidArgument maxTimeMS":           {MaxTimeMs: new(int64(-1))},
		"InvalidArgument readPreference.mode": {ReadPreference: &mooringv1.ReadPreference{Mode: new("x")}},
		"MalformedDocument options":           {Options: json(`{`)},
	} {
		if _, err := read(req); refusal(err) != want {
			t.Errorf("%q, want %q", refusal(err), want)
		}
	}
}

// TestOwnComment checks that the comment of the gateway is that of a request without one.
func TestOwnComment(t *testing.T) {
	table := request.NewTable([]proto.Message{&mooringv1.EstimatedDocumentCountRequest{}}, nil,
		request.CommonRead(common), request.Rows(maxTime()))
	own := bson.StringValue("own")
	for _, tt := range []struct {
		own    *bson.Value
		client *mooringv1.Value
		want   string
	}{
		{nil, nil, ""},
		{&own, nil, "own"},
		{nil, payload.NewValue(bson.StringValue("client's")), "client's"},
		{&own, payload.NewValue(bson.StringValue("client's")), "client's"},
	} {
		ctx := &call.Context{Context: t.Context(), Call: call.Call{Comment: tt.own}}
		req := &mooringv1.EstimatedDocumentCountRequest{Comment: tt.client}
		r := request.Read(ctx, req, nil)
		o := table.Read(r, req)
		if got, _ := o.Comment.Str(); got != tt.want || r.Err() != nil {
			t.Errorf("own %v, client's %v: %q, %v; want %q", tt.own, tt.client, got, r.Err(),
				tt.want)
		}
	}
}
