package worst_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// request is one HTTP request.
type request struct {
	grpc         bool // at the port of gRPC, by HTTP/2
	method, path string
	header       map[string]string
	body         []byte
}

// protocol is a way in.
type protocol struct {
	name string
	// build returns the request of an RPC with a payload; nil: it cannot be called in this way.
	build func(m protoreflect.MethodDescriptor, s shape, p payload) *request
}

const grpcContent = "application/grpc"

var protocols = []protocol{
	{"gRPC", func(m protoreflect.MethodDescriptor, s shape, p payload) *request {
		return framed(m, grpcContent, s, binaryRequest(m, s, p, false))
	}},
	{"gRPC, JSON", func(m protoreflect.MethodDescriptor, s shape, p payload) *request {
		if s.unknown || isText(m) {
			return nil // the same as above
		}
		return framed(m, grpcContent, s, binaryRequest(m, s, p, true))
	}},
	{"gRPC-Web", func(m protoreflect.MethodDescriptor, s shape, p payload) *request {
		return framed(m, "application/grpc-web+proto", s, binaryRequest(m, s, p, false))
	}},
	{"Connect", func(m protoreflect.MethodDescriptor, s shape, p payload) *request {
		return connect(m, "proto", s, binaryRequest(m, s, p, false))
	}},
	{"Connect, JSON", func(m protoreflect.MethodDescriptor, s shape, p payload) *request {
		return connect(m, "json", s, jsonRequest(m, s, p, false))
	}},
	{"REST", restRequest},
	{"Data API", dataAPIRequest},
	{"NDJSON", func(m protoreflect.MethodDescriptor, s shape, p payload) *request {
		return importRequest(m, "application/x-ndjson", s,
			append(bytes.Join(p.text, []byte{'\n'}), '\n'))
	}},
	{"BSON", func(m protoreflect.MethodDescriptor, s shape, p payload) *request {
		return importRequest(m, "application/bson", s, bytes.Join(p.bson, nil))
	}},
}

func isText(m protoreflect.MethodDescriptor) bool {
	s := roomiest(m.Input())
	return s == nil || s.last().Message() == nil
}

func pathOf(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// framed returns a request whose message is in a frame, as gRPC, gRPC-Web and the streams of
// Connect have it.
func framed(m protoreflect.MethodDescriptor, content string, s shape, message []byte) *request {
	r := &request{
		grpc: content == grpcContent, method: http.MethodPost, path: pathOf(m),
		header: map[string]string{"Content-Type": content, "Te": "trailers"},
	}
	flag := byte(0)
	if s.gzip {
		flag, message = 1, compressed(message)
		r.header["Grpc-Encoding"], r.header["Connect-Content-Encoding"] = "gzip", "gzip"
	}
	frame := binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(message)))
	r.body = append(frame, message...)
	return r
}

func connect(m protoreflect.MethodDescriptor, codec string, s shape, message []byte) *request {
	if m.IsStreamingClient() || m.IsStreamingServer() {
		return framed(m, "application/connect+"+codec, s, message)
	}
	return plain(http.MethodPost, pathOf(m), "application/"+codec, s, message)
}

func plain(method, path, content string, s shape, body []byte) *request {
	r := &request{
		method: method, path: path, header: map[string]string{"Content-Type": content}, body: body,
	}
	if s.gzip {
		r.body, r.header["Content-Encoding"] = compressed(body), "gzip"
	}
	return r
}

func restRequest(m protoreflect.MethodDescriptor, s shape, p payload) *request {
	b, ok := bindingOf(m)
	if !ok {
		return nil
	}
	const inURL = 7 << 10 // of 8 KiB
	switch {
	case s.reply && b.field != "":
		body := `{"a":1}`
		if b.field == "update" {
			body = `{"$set":{"a":1}}`
		}
		return plain(b.method, b.path, "application/json", s, []byte(body))
	case s.reply && b.method != http.MethodPost:
		return plain(b.method, b.path, "", s, nil)
	case b.method == http.MethodGet || b.method == http.MethodDelete:
		filter := s.object(func(b []byte, _ int) bool { return len(b) < inURL/3 })
		b.path += "?filter=" + url.QueryEscape(string(filter[:min(len(filter), inURL/3)]))
		return plain(b.method, b.path, "application/json", s, p.text[0]) // not read
	case b.field != "":
		return plain(b.method, b.path, "application/json", s, p.text[0])
	}
	return plain(b.method, b.path, "application/json", s, jsonRequest(m, s, p, true))
}

func dataAPIRequest(m protoreflect.MethodDescriptor, s shape, p payload) *request {
	a, ok := actions[nameOf(m)]
	if !ok {
		return nil
	}
	if s.reply {
		p.text = [][]byte{[]byte(`{"a":1}`)}
		if a.field == "pipeline" {
			p.text = [][]byte{[]byte(`{"$match":{}}`)}
		}
	}
	text := p.text[0]
	if a.field == "documents" || a.field == "pipeline" {
		text = list(p.text)
	}
	body := bytes.Join([][]byte{
		[]byte(`{"dataSource":"worst","database":"d","collection":"c","` + a.field + `":`),
		text,
		{'}'},
	}, nil)
	return plain(http.MethodPost, "/action/"+a.name, "application/json", s, body)
}

func importRequest(m protoreflect.MethodDescriptor, content string, s shape, body []byte) *request {
	if nameOf(m) != "DocumentService/Import" || s.unknown || s.spread {
		return nil
	}
	return plain(http.MethodPost, "/v1/databases/d/collections/c/documents:import", content, s,
		body)
}

// placesOf returns where the payload goes in a request.
func placesOf(m protoreflect.MethodDescriptor, s shape) (places []site) {
	if s.reply {
		for _, place := range sitesOf(m.Input()) {
			if smallest(place) != nil {
				places = append(places, place)
			}
		}
	} else if s.spread {
		for _, place := range sitesOf(m.Input()) {
			if documents, _ := place.holds(); documents && len(place) == 1 {
				places = append(places, place)
			}
		}
	} else if best := roomiest(m.Input()); best != nil {
		places = []site{best}
	}
	return places
}

// share returns the part of a payload that one of several places gets: fewer elements.
func (s shape) share(p payload, places int) payload {
	if !s.spread || places == 0 {
		return p
	}
	text, bson := len(p.text[0])/places, len(p.bson[0])/places
	return payload{
		text: [][]byte{s.object(func(b []byte, _ int) bool { return len(b) < text })},
		bson: [][]byte{s.raw(func(b []byte, _ int) bool { return len(b) < bson })},
	}
}

// binaryRequest returns a request as protobuf, with its documents as BSON or as JSON.
func binaryRequest(m protoreflect.MethodDescriptor, s shape, p payload, asText bool) []byte {
	var b []byte
	for _, field := range []protoreflect.Name{"database", "collection"} {
		if f := m.Input().Fields().ByName(field); f != nil {
			b = protowire.AppendTag(b, f.Number(), protowire.BytesType)
			b = protowire.AppendString(b, string(field[:1]))
		}
	}
	if s.unknown {
		for len(b) < len(p.bson[0]) { // groups of small fields
			b = append(protowire.AppendTag(b, 1000, protowire.VarintType), 1)
		}
		return b
	}
	places := placesOf(m, s)
	p = s.share(p, len(places))
	for _, place := range places {
		b = append(b, place.encode(s.at(place, p), asText)...)
	}
	return b
}

// at returns what is at a place: the payload, or something small that the gateway accepts there.
func (s shape) at(place site, p payload) payload {
	if s.reply {
		return *smallest(place)
	}
	return p
}

// encode returns a payload in its field, in the messages around it.
func (s site) encode(p payload, asText bool) []byte {
	documents, many := s.holds()
	content, number := p.bson, protowire.Number(1)
	if asText {
		content, number = p.text, 2
	}
	if !many {
		content = content[:1]
	}
	var b []byte
	for _, one := range content {
		if documents || s.last().Message() != nil {
			one = field(nil, number, one)
		} else {
			one = bytes.Repeat([]byte{'x'}, len(one))
		}
		b = field(b, s.last().Number(), one)
	}
	for i := len(s) - 2; i >= 0; i-- {
		b = field(nil, s[i].Number(), b)
	}
	return b
}

func field(dst []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), content)
}

// jsonRequest returns a request as JSON: that of REST with documents in their places, or that of
// protobuf.
func jsonRequest(m protoreflect.MethodDescriptor, s shape, p payload, inline bool) []byte {
	b := []byte{'{'}
	if !inline {
		for _, field := range []protoreflect.Name{"database", "collection"} {
			if m.Input().Fields().ByName(field) != nil {
				b = append(b, `"`+string(field)+`":"`+string(field[:1])+`",`...)
			}
		}
	}
	places := placesOf(m, s)
	p = s.share(p, len(places))
	for _, place := range places {
		b = append(append(b, place.text(s.at(place, p), inline)...), ',')
	}
	if s.unknown || len(places) == 0 && !s.reply {
		b = append(append(b, `"unknown":`...), p.text[0]...)
	}
	return append(bytes.TrimSuffix(b, []byte{','}), '}')
}

// text returns `"name":value`, with the objects around it.
func (s site) text(p payload, inline bool) []byte {
	documents, many := s.holds()
	var values [][]byte
	for i, one := range p.text {
		switch {
		case !documents && s.last().Message() == nil:
			one, _ = json.Marshal(string(bytes.Repeat([]byte{'x'}, len(one))))
		case !inline:
			bson := p.bson[i][:min(len(p.bson[i]), largest/4*3)] // base64 takes a third more
			one = []byte(`{"bson":"` + base64.StdEncoding.EncodeToString(bson) + `"}`)
		}
		values = append(values, one)
		if !many {
			break
		}
	}
	b := values[0]
	if many {
		b = list(values)
	}
	for i := len(s) - 1; i >= 0; i-- {
		outer := i > 0 && inline && isInline(s[i-1].Message())
		if !outer { // else the value stands for the message around it
			b = append([]byte(`"`+s[i].JSONName()+`":`), b...)
		}
		if i > 0 && !outer {
			b = append(append([]byte{'{'}, b...), '}')
			if s[i-1].IsList() {
				b = list([][]byte{b})
			}
		}
	}
	return b
}

// isInline reports whether REST has one of a message's fields in its place.
func isInline(m protoreflect.MessageDescriptor) bool {
	switch m.Name() {
	case "Update", "Pipeline", "Hint", "W":
		return true
	}
	return false
}

func compressed(b []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}
