package interceptor

import (
	"log/slog"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

const (
	// maxShape is the length at which a shape is cut off, and maxDepth the depth.
	maxShape = 400
	maxDepth = 8
	// maxText is how many bytes of JSON are read for the shapes of a request.
	maxText = 64 << 10
)

// shapes returns what the documents of a request look like: their keys, without values.
func shapes(request any) (attrs []slog.Attr) {
	left := maxText
	if r, ok := request.(interface{ GetFilter() *mooringv1.Document }); ok && r.GetFilter() != nil {
		attrs = append(attrs, slog.String("filter", shapeOf(r.GetFilter(), &left)))
	}
	if r, ok := request.(interface{ GetPipeline() []*mooringv1.Document }); ok {
		var b strings.Builder
		for i, stage := range r.GetPipeline() {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(shapeOf(stage, &left))
			if b.Len() > maxShape {
				break
			}
		}
		attrs = append(attrs, slog.String("pipeline", short(b.String())))
	}
	if r, ok := request.(interface{ GetCommand() *mooringv1.Document }); ok {
		attrs = append(attrs, slog.String("command", shapeOf(r.GetCommand(), &left)))
	}
	return attrs
}

// shapeOf returns the shape of a document, such as {a: ?, b: {$gt: ?}}. That of one in JSON that is
// longer than what is left is "?".
func shapeOf(d *mooringv1.Document, left *int) string {
	raw := bson.Raw(d.GetBson())
	if text := d.GetJson(); text != "" {
		if len(text) > *left {
			return "?"
		}
		*left -= len(text)
		parsed, err := extjson.Parse(nil, []byte(text))
		if err != nil {
			return "?"
		}
		raw = parsed
	}
	var b strings.Builder
	appendShape(&b, raw, 0)
	return short(b.String())
}

func short(text string) string {
	if len(text) <= maxShape {
		return text
	}
	return strings.ToValidUTF8(text[:maxShape], "") + "…"
}

func appendShape(b *strings.Builder, d bson.Raw, depth int) {
	b.WriteByte('{')
	it := d.Iter()
	for first := true; it.Next() && b.Len() <= maxShape; first = false {
		if !first {
			b.WriteString(", ")
		}
		key := it.Key()
		b.WriteString(key[:min(len(key), maxShape)]) // short cuts off more than this leaves out
		b.WriteString(": ")
		appendValue(b, it.Value(), depth)
	}
	b.WriteByte('}')
}

func appendValue(b *strings.Builder, v bson.Value, depth int) {
	if depth == maxDepth {
		b.WriteByte('?')
		return
	}
	if d, ok := v.Document(); ok {
		appendShape(b, d, depth+1)
		return
	}
	a, ok := v.Array()
	if !ok {
		b.WriteByte('?')
		return
	}
	b.WriteByte('[')
	for i, element := range a.All() {
		if _, ok := element.Document(); !ok || b.Len() > maxShape {
			b.WriteByte('?') // and all that follow
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		appendValue(b, element, depth+1)
	}
	b.WriteByte(']')
}
