package protocols

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// The gateway's errors say why, in details of google.rpc. The suite has none of these, and allows
// no details but those that it has asked for. So they are taken out of what the suite gets.

func isGateways(typeName string) bool {
	return strings.HasPrefix(typeName[strings.LastIndexByte(typeName, '/')+1:], "google.rpc.")
}

// withoutOurs returns a gRPC error without the gateway's own details.
func withoutOurs(err error) error {
	st, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	return status.FromProto(stripped(st.Proto())).Err()
}

func stripped(st *statuspb.Status) *statuspb.Status {
	st.Details = slices.DeleteFunc(st.GetDetails(), func(d *anypb.Any) bool {
		return isGateways(d.GetTypeUrl())
	})
	return st
}

// strip returns what the port of REST writes in one piece without the gateway's own details.
func strip(contentType string, failed bool, b []byte) []byte {
	switch {
	case contentType == "application/json" && failed:
		return stripJSON(b)
	case len(b) < 5 || int(binary.BigEndian.Uint32(b[1:]))+5 != len(b):
		return b
	case strings.HasPrefix(contentType, "application/connect+") && b[0] == 2:
		return envelope(b[0], stripJSON(b[5:]))
	case strings.HasPrefix(contentType, "application/grpc-web") && b[0] == 0x80:
		return envelope(b[0], stripTrailers(b[5:]))
	}
	return b
}

func envelope(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

// stripJSON takes the details out of an error of Connect, or of the end of a stream.
func stripJSON(text []byte) []byte {
	var m map[string]any
	if json.Unmarshal(text, &m) != nil {
		return text
	}
	of := m
	if e, ok := m["error"].(map[string]any); ok {
		of = e
	}
	if details, ok := of["details"].([]any); ok {
		of["details"] = slices.DeleteFunc(details, func(d any) bool {
			name, _ := d.(map[string]any)["type"].(string)
			return isGateways(name)
		})
	}
	out, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return out
}

// stripTrailers takes the details out of the trailers of gRPC-Web.
func stripTrailers(text []byte) []byte {
	const name = "grpc-status-details-bin: "
	lines := bytes.SplitAfter(text, []byte("\r\n"))
	for i, line := range lines {
		value, ok := bytes.CutPrefix(line, []byte(name))
		if !ok {
			continue
		}
		raw, err := base64.RawStdEncoding.DecodeString(string(bytes.TrimSpace(value)))
		var st statuspb.Status
		if err != nil || proto.Unmarshal(raw, &st) != nil {
			panic("the details cannot be read")
		}
		if raw, err = proto.Marshal(stripped(&st)); err != nil {
			panic(err)
		}
		lines[i] = []byte(name + base64.RawStdEncoding.EncodeToString(raw) + "\r\n")
	}
	return bytes.Join(lines, nil)
}

// renaming writes a response with the suite's names of headers, and without the gateway's own
// details.
type renaming struct {
	http.ResponseWriter
	failed int // the status of an answer that is one piece of JSON; 0: it is written
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *renaming) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader writes the header, unless its length changes with the body.
func (w *renaming) WriteHeader(code int) {
	h := w.Header()
	for name, values := range h {
		if back, ok := strings.CutPrefix(name, renamed); ok {
			delete(h, name)
			for _, v := range values {
				h.Add(back, v)
			}
		}
	}
	if code != http.StatusOK && h.Get("Content-Type") == "application/json" {
		w.failed = code
		return
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write writes a piece of the body.
func (w *renaming) Write(b []byte) (int, error) {
	out := strip(w.Header().Get("Content-Type"), w.failed != 0, b)
	if w.failed != 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(out)))
		w.ResponseWriter.WriteHeader(w.failed)
		w.failed = 0
	}
	if _, err := w.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}
