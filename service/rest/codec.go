package rest

import (
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/payload"
)

// Decode reads a request as a body of REST has it: documents stand in their places as Extended
// JSON. The fields that belong to the path are read, too. Errors are *rpcerr.Error.
func Decode(m proto.Message, json []byte) error {
	r := m.ProtoReflect()
	d := decoder{
		json: json, make: &payload.Maker{Legacy: true}, limit: itemLimit{most: math.MaxInt},
	}
	if c, err := d.peek(); err != nil || c != '{' {
		return d.fail("expected an object")
	}
	if err := d.object(planner{}.plan(r.Descriptor()), r); err != nil {
		return err
	}
	return d.end()
}

// Append appends a response as REST has it.
func Append(dst []byte, m proto.Message, mode extjson.Mode) ([]byte, error) {
	r := m.ProtoReflect()
	e := encoder{buf: dst, mode: mode}
	err := e.response(planner{}.plan(r.Descriptor()), r)
	return e.buf, err
}
