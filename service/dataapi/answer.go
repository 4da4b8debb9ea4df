package dataapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// flushAt is the size of a response's text from which it is sent in pieces. A failure after that
// ends the connection, since the status is sent.
const flushAt = 256 << 10

// keptBuffer is the largest buffer that is used for the next piece. A larger one has had a document
// that was charged.
const keptBuffer = 2 * flushAt

// output writes the text of one response.
type output struct {
	x      *front.Exchange
	mode   extjson.Mode
	status int
	buf    []byte
	begun  bool // the status is written
	gone   bool // the client does not read
}

// reply writes a response. It returns the error of write, after which a part may be sent.
func (c *call) reply(status int, write func(o *output) error) error {
	o := &c.out
	o.x, o.mode, o.status = c.x, c.mode, status
	err := write(o)
	if err != nil {
		return err
	}
	if !o.begun {
		o.x.Response.Header().Set("Content-Length", strconv.Itoa(len(o.buf)))
	}
	o.flush()
	return nil
}

func (o *output) flush() {
	if !o.begun {
		o.begun = true
		o.x.Response.Header().Set("Content-Type", mediaOf(o.mode))
		o.x.Response.WriteHeader(o.status)
	}
	o.gone = o.gone || !o.x.Response.Write(o.buf)
	o.buf = o.buf[:0]
	if cap(o.buf) > keptBuffer {
		o.buf = nil
	}
	o.x.Memory.ReleaseRoom()
}

func mediaOf(m extjson.Mode) string {
	if m == extjson.Canonical {
		return mediaEJSON
	}
	return mediaJSON
}

func (o *output) text(s string) { o.buf = append(o.buf, s...) }

// documents writes the items of a list, which may follow others.
func (o *output) documents(items []*mooringv1.Document, follow bool) error {
	for i, d := range items {
		if follow || i > 0 {
			o.text(",")
		}
		if err := o.document(d); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) document(d *mooringv1.Document) (err error) {
	if o.gone {
		return errGone
	}
	room, err := o.x.Memory.MakeRoom(o.buf, d.GetBson())
	if err != nil {
		return err
	}
	if o.buf, err = extjson.Append(room, d.GetBson(), o.mode); err != nil {
		return payload.Unencodable(err)
	}
	if len(o.buf) >= flushAt {
		o.flush()
		o.x.Response.Rest()
	}
	return nil
}

var errGone = &rpcerr.Error{
	Reason: rpcerr.Canceled, Message: "the client has disconnected",
}

func (o *output) value(v *mooringv1.Value) (err error) {
	native, ok := bson.Raw(v.GetBson()).Lookup(payload.ValueKey)
	if !ok {
		return fmt.Errorf("bug: a Value without %q", payload.ValueKey)
	}
	if o.buf, err = extjson.AppendValue(o.buf, native, o.mode); err != nil {
		return payload.Unencodable(err)
	}
	return nil
}

// count writes a number, which is canonical too if documents are.
func (o *output) count(n int64) {
	v := bson.Int64Value(n)
	if n <= math.MaxInt32 {
		v = bson.Int32Value(int32(n))
	}
	o.buf, _ = extjson.AppendValue(o.buf, v, o.mode) // a number cannot fail
}

// The codes of errors that have names of their own. Others have the gateway's reasons.
const (
	codeInvalid  = "InvalidParameter"
	codeMissing  = "MissingParameter"
	codeSession  = "InvalidSession"
	codeRefused  = "NoMatchingRuleFound"
	codeTooMany  = "TooManyRequests"
	codeNoAction = "FunctionNotFound"
)

// fail answers a failure.
func (c *call) fail(ctx context.Context, err error) {
	failed := c.x.Explain(ctx, err).HTTP()
	status, code, text := describe(c.x.Request().Header, err, failed)
	h := c.x.Response.Header()
	if status != http.StatusUnauthorized {
		h.Del("Www-Authenticate")
	}
	c.x.Response.SetRetryAfter(failed)
	body := bson.NewBuilder(nil).String("error", text).String("error_code", code).
		String("link", "urn:mooring:request:"+c.x.ID()).Finish()
	out, err := extjson.Append(nil, body, extjson.Relaxed)
	if err != nil {
		out = []byte(`{"error":"` + code + `","error_code":"` + code + `","link":""}`)
	}
	h.Set("Content-Type", mediaJSON)
	h.Set("Content-Length", strconv.Itoa(len(out)))
	c.x.Response.WriteHeader(status)
	c.x.Response.Write(out)
}

// describe returns the status, the code and the text of a failure. What the server refuses is 400,
// whatever it is on REST.
func describe(h http.Header, err error, failed rpcerr.Response) (status int, code, text string) {
	body := failed.Body.GetError()
	text, code = body.GetMessage(), body.GetReason()
	if field := body.GetField(); field != "" && !strings.HasPrefix(text, field+": ") {
		text = field + ": " + text
	}
	switch {
	case isMissing(err) && (h["Email"] != nil || h["Password"] != nil):
		return http.StatusBadRequest, codeMissing,
			"must specify some form of authentication (either email+password, api-key, or jwt) " +
				"in the request header or body; email and password are not offered here"
	case isMissing(err):
		return http.StatusBadRequest, codeInvalid, "no authentication methods were specified"
	}
	switch reason := rpcerr.Reason(code); failed.Code {
	case http.StatusUnauthorized:
		return failed.Code, codeSession, "invalid session: " + text
	case http.StatusForbidden:
		if reason != rpcerr.CrossOrigin {
			code = codeRefused
		}
		return failed.Code, code, text
	case http.StatusNotFound:
		if reason == rpcerr.RouteNotFound {
			return failed.Code, codeNoAction, text
		}
		return http.StatusBadRequest, code, text
	case http.StatusTooManyRequests:
		return failed.Code, codeTooMany, text
	case http.StatusBadRequest:
		return failed.Code, codeOf(err, reason), text
	case http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed,
		http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return http.StatusBadRequest, code, text
	}
	return failed.Code, code, text
}

// codeOf returns the code of a request that is wrong.
func codeOf(err error, reason rpcerr.Reason) string {
	if _, ok := err.(*errMissing); ok { //nolint:errorlint // it is never wrapped
		return codeMissing
	}
	switch reason {
	case rpcerr.InvalidArgument, rpcerr.MalformedDocument:
		return codeInvalid
	default:
		return string(reason)
	}
}
