package media_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/media"
)

// TestAccept checks which of the offers a header of one line chooses, and how documents are written
// then. "-" stands for none.
func TestAccept(t *testing.T) {
	page := []media.Type{media.JSON, media.EJSON, media.BSON}
	stream := []media.Type{media.NDJSON, media.SSE}
	names := map[extjson.Mode]string{
		extjson.RelaxedSafe: "", extjson.Relaxed: " relaxed", extjson.Canonical: " canonical",
		extjson.Plain: " plain",
	}
	for _, c := range []struct {
		offers []media.Type
		accept string
		want   string
	}{
		{page, "", "application/json"},
		{page, " , ", "application/json"},
		{page, "*/*", "application/json"},
		{page, "application/*", "application/json"},
		{page, "APPLICATION/JSON", "application/json"},
		{page, "application/json; charset=UTF-8", "application/json"},
		{page, "application/json; charset=latin1", "-"},
		{page, "application/ejson", "application/ejson canonical"},
		{page, "application/json; profile=canonical", "application/json canonical"},
		{page, "application/json; profile=plain", "application/json plain"},
		{page, "application/ejson; profile=plain", "-"},
		{page, "application/json; profile=other", "-"},
		{page, "application/json; int64=number", "application/json relaxed"},
		{page, "application/json; int64=text", "-"},
		{page, "application/json; other=1", "application/json"},
		{page, "application/bson", "application/bson"},
		{page, "text/html, application/bson;q=0.5", "application/bson"},
		{page, "text/html", "-"},
		{page, "no type", "-"},
		{page, "application/json;q=0", "-"},
		{page, "application/json;q=2", "-"},
		{page, "application/json;q=-1", "-"},
		{page, "application/json;q=x, application/bson;q=0.1", "application/bson"},
		{page, "application/json;q=0, */*", "application/ejson canonical"},
		{page, "*/*, application/json;q=0.9", "application/ejson canonical"},
		{page, "application/json, application/json; profile=plain", "application/json plain"},

		{stream, "*/*", "application/x-ndjson"},
		{stream, "application/x-ndjson; bare=true", "application/x-ndjson bare"},
		{stream, "application/x-ndjson; bare=false", "application/x-ndjson"},
		{stream, "application/x-ndjson; bare=1", "-"},
		{stream, "text/event-stream; bare=true", "text/event-stream"},
		// The most exact range has the weight, at any position.
		{stream, "*/*;q=0.9, application/*;q=0.1", "text/event-stream"},
		{stream, "application/*;q=0.1, */*;q=0.9", "text/event-stream"},
		{stream, "text/*;q=0.1, */*;q=0.9", "application/x-ndjson"},
		{stream, "application/*;q=0.1, application/x-ndjson, text/*", "application/x-ndjson"},
		{stream, "application/x-ndjson;q=0.1, application/*, text/*", "text/event-stream"},
		{stream, "*/*, application/*;q=0", "text/event-stream"},
		{stream, "application/*;q=0.5, text/event-stream;q=0.5", "text/event-stream"},
		{stream, "application/x-ndjson;q=0.2, application/*;q=0.9, */*", "text/event-stream"},
	} {
		f, ok := media.Accept([]string{c.accept}, c.offers)
		got := "-"
		if ok {
			got = f.Type.String() + names[f.Mode]
		}
		if f.Bare {
			got += " bare"
		}
		if got != c.want {
			t.Errorf("Accept(%q) = %s, want %s", c.accept, got, c.want)
		}
	}
}

// TestAcceptOfLines checks requests without the header, and with two lines of it.
func TestAcceptOfLines(t *testing.T) {
	offers := []media.Type{media.JSON, media.BSON}
	if f, ok := media.Accept(nil, offers); !ok || f.Type != media.JSON ||
		f.Mode != extjson.RelaxedSafe {
		t.Errorf("Accept(nil) = %v, %t", f, ok)
	}
	lines := []string{"application/json;q=0.1", "text/html, application/bson;q=0.2"}
	if f, ok := media.Accept(lines, offers); !ok || f.Type != media.BSON {
		t.Errorf("Accept(%q) = %v, %t", lines, f, ok)
	}
}
