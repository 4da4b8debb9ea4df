package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// begin writes the status and the header of a response.
func (c *call) begin(code int) {
	c.begun = true
	h := c.x.Response.Header()
	h.Set("Content-Type", c.wire.contentType())
	if c.wire.protocol != connectUnary && c.out != coding.Identity {
		h.Set(c.wire.codings().content, c.out.String())
	}
	if c.method != nil && c.method.sends {
		h.Set("X-Accel-Buffering", "no")
	}
	c.setHeader()
	c.x.Response.WriteHeader(code)
}

// setHeader sets what the handler has set of the header.
func (c *call) setHeader() {
	for key, values := range c.header {
		if strings.HasPrefix(key, "mooring-") && key != "mooring-request-id" {
			c.x.Response.Header()[http.CanonicalHeaderKey(key)] = values
		}
	}
}

// setTrailer sets the trailer of a unary call of Connect, which is in the header.
func (c *call) setTrailer() {
	for key, values := range c.trailer {
		c.x.Response.Header()[http.CanonicalHeaderKey("trailer-"+key)] = values
	}
}

// largeRoom is the smallest room of a response message that is charged. A small message is sent
// even if there is no memory, as on gRPC: it would end a stream that had been idle.
const largeRoom = 64 << 10

// write writes a response message, which is charged meanwhile if it is large.
func (c *call) write(m proto.Message) error {
	size := proto.Size(m)
	if room := c.room(size); room >= largeRoom {
		if err := c.x.Memory.ChargeLast(room); err != nil {
			return err
		}
		defer c.x.Memory.Release(room)
	}
	return c.x.Work(size, func() error { return c.writeMessage(m) })
}

func (c *call) writeMessage(m proto.Message) error {
	data, err := c.encode(m)
	if err != nil {
		return err
	}
	if c.wire.protocol == connectUnary {
		c.writeUnary(data)
		return nil
	}
	flags := byte(0)
	if c.out != coding.Identity && c.x.Response.IsWorthCompressing(len(data)) {
		data, flags = c.out.Append(nil, data), flagCompressed
	}
	return c.writeEnvelope(flags, data)
}

// writeUnary writes the response of a unary call of Connect.
func (c *call) writeUnary(data []byte) {
	h := c.x.Response.Header()
	if c.out != coding.Identity && c.x.Response.IsWorthCompressing(len(data)) {
		data = c.out.Append(nil, data)
		h.Set("Content-Encoding", c.out.String())
	}
	h.Add("Vary", "Accept-Encoding")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	c.setTrailer()
	c.begin(http.StatusOK)
	c.x.Response.Write(data) // if it fails, the client has disconnected
}

func (c *call) writeEnvelope(flags byte, data []byte) error {
	out := c.openEnvelope(flags, data)
	if !c.isStream() {
		if !c.x.Response.Write(out) {
			return &rpcerr.Error{
				Reason: rpcerr.Canceled, Message: "the client has disconnected",
			}
		}
		return nil
	}
	if err := c.x.Response.Send(out); err != nil {
		return &rpcerr.Error{
			Reason: rpcerr.Canceled, Message: "the client has disconnected: " + err.Error(),
		}
	}
	return nil
}

// openEnvelope returns the bytes of an envelope, in a response that has begun.
func (c *call) openEnvelope(flags byte, data []byte) []byte {
	out := envelope(make([]byte, 0, headerBytes+len(data)), flags, data)
	if c.wire.text {
		out = base64.StdEncoding.AppendEncode(nil, out)
	}
	if !c.begun {
		c.begin(http.StatusOK)
	}
	return out
}

// end writes the end of a call, which may have failed.
func (c *call) end(ctx context.Context, err error) {
	var failed *rpcerr.Failure
	st := status.New(codes.OK, "")
	if err != nil {
		failed = c.x.Explain(ctx, err)
		st = failed.GRPCStatus()
		c.announce(failed)
	}
	switch {
	case c.wire.protocol == grpcWeb && !c.isStream():
		c.x.Response.Write(c.openEnvelope(flagTrailers, trailers(st, c.trailer)))
	case c.wire.protocol == grpcWeb:
		c.x.Response.SendLast(c.openEnvelope(flagTrailers, trailers(st, c.trailer)))
	case c.wire.protocol == connectStream && c.isStream():
		c.x.Response.SendLast(c.openEnvelope(flagEnd, endOf(st, c.trailer)))
	case failed == nil:
	case c.begun:
		panic(http.ErrAbortHandler)
	default:
		c.writeError(failed, st)
	}
}

// announce sets the headers of a failure that are the same in all protocols.
func (c *call) announce(failed *rpcerr.Failure) {
	if !c.begun {
		c.x.Response.SetRetryAfter(failed.HTTP())
	}
}

// writeError writes the failure of a unary call of Connect, and of a request that is not a call.
func (c *call) writeError(failed *rpcerr.Failure, st *status.Status) {
	code := connectStatus[st.Code()]
	switch response := failed.HTTP(); response.Code {
	case http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType,
		http.StatusMisdirectedRequest:
		code = response.Code // it is not a call
	}
	text, err := json.Marshal(connectError(st))
	if err != nil {
		panic("bug: web: " + err.Error()) // it has only texts
	}
	h := c.x.Response.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	c.setHeader()
	c.setTrailer()
	c.x.Response.WriteHeader(code)
	c.x.Response.Write(text)
}

// connectStatus has the HTTP status of each code, as Connect's specification says.
var connectStatus = map[codes.Code]int{
	codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400,
	codes.DeadlineExceeded: 504, codes.NotFound: 404, codes.AlreadyExists: 409,
	codes.PermissionDenied: 403, codes.ResourceExhausted: 429, codes.FailedPrecondition: 400,
	codes.Aborted: 409, codes.OutOfRange: 400, codes.Unimplemented: 501, codes.Internal: 500,
	codes.Unavailable: 503, codes.DataLoss: 500, codes.Unauthenticated: 401,
}

// connectNames has Connect's name of each code.
var connectNames = map[codes.Code]string{
	codes.Canceled: "canceled", codes.Unknown: "unknown",
	codes.InvalidArgument: "invalid_argument", codes.DeadlineExceeded: "deadline_exceeded",
	codes.NotFound: "not_found", codes.AlreadyExists: "already_exists",
	codes.PermissionDenied: "permission_denied", codes.ResourceExhausted: "resource_exhausted",
	codes.FailedPrecondition: "failed_precondition", codes.Aborted: "aborted",
	codes.OutOfRange: "out_of_range", codes.Unimplemented: "unimplemented",
	codes.Internal: "internal", codes.Unavailable: "unavailable", codes.DataLoss: "data_loss",
	codes.Unauthenticated: "unauthenticated",
}

// errorBody holds the JSON of a failure in Connect's protocol.
type errorBody struct {
	Code    string       `json:"code"`
	Message string       `json:"message"`
	Details []detailBody `json:"details,omitempty"`
}

type detailBody struct {
	Type  string `json:"type"`
	Value string `json:"value"` // base64 without padding
}

func connectError(st *status.Status) *errorBody {
	body := &errorBody{Code: connectNames[st.Code()], Message: st.Message()}
	for _, d := range st.Proto().GetDetails() {
		name := d.GetTypeUrl()
		body.Details = append(body.Details, detailBody{
			Type:  name[strings.LastIndexByte(name, '/')+1:],
			Value: base64.RawStdEncoding.EncodeToString(d.GetValue()),
		})
	}
	return body
}

// endOf returns the last message of a stream of Connect.
func endOf(st *status.Status, trailer metadata.MD) []byte {
	var end struct {
		Error    *errorBody  `json:"error,omitempty"`
		Metadata metadata.MD `json:"metadata,omitempty"`
	}
	end.Metadata = trailer
	if st.Code() != codes.OK {
		end.Error = connectError(st)
	}
	text, err := json.Marshal(end)
	if err != nil {
		panic("bug: web: " + err.Error()) // it has only texts
	}
	return text
}

// trailers returns the trailers of gRPC-Web, as lines.
func trailers(st *status.Status, trailer metadata.MD) []byte {
	out := fmt.Appendf(nil, "grpc-status: %d\r\n", st.Code())
	if st.Message() != "" {
		out = fmt.Appendf(out, "grpc-message: %s\r\n", percent(st.Message()))
	}
	if len(st.Proto().GetDetails()) > 0 {
		details, err := proto.Marshal(st.Proto())
		if err != nil {
			panic("bug: web: " + err.Error()) // it comes from rpcerr
		}
		out = fmt.Appendf(out, "grpc-status-details-bin: %s\r\n",
			base64.RawStdEncoding.EncodeToString(details))
	}
	for key, values := range trailer {
		for _, v := range values {
			if strings.HasSuffix(key, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			out = fmt.Appendf(out, "%s: %s\r\n", key, v)
		}
	}
	return out
}

// percent encodes a message as gRPC does: all but printable ASCII, and percent signs.
func percent(s string) string {
	if !slices.ContainsFunc([]byte(s), isEncoded) {
		return s
	}
	var out []byte
	for _, b := range []byte(s) {
		if isEncoded(b) {
			out = fmt.Appendf(out, "%%%02X", b)
		} else {
			out = append(out, b)
		}
	}
	return string(out)
}

func isEncoded(b byte) bool { return b < ' ' || b > '~' || b == '%' }
