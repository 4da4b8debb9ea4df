package conn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn/metadata"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/wire"
)

// wireVersionMsg is the first wire version with OP_MSG (MongoDB 3.6).
const wireVersionMsg = 6

// ServerAPI holds the stable API that commands declare.
type ServerAPI struct {
	Version                   string
	Strict, DeprecationErrors *bool
}

// handshake sends the connection's first hello, which alone has the client metadata and begins an
// authentication, and keeps the server's reply.
func (c *Conn) handshake(ctx context.Context, cfg Config) error {
	msg, err := firstHello(cfg, c.auth)
	if err != nil {
		return err
	}
	start := time.Now()
	reply, err := c.exchange(ctx, msg)
	if err != nil && isRefusal(err) {
		return &mongoerr.OverloadError{Err: err}
	}
	if err != nil {
		return err
	}
	rtt := time.Since(start)
	desc := description.NewServer(c.addr, reply, rtt)
	desc.AverageRTT = rtt
	if desc.LastError != nil {
		return fmt.Errorf("hello to %s: %w", c.addr, desc.LastError)
	}
	if cfg.LoadBalanced && desc.ServiceID == (bson.ObjectID{}) {
		return &NotLoadBalancedError{}
	}
	c.desc, c.hello = desc, reply
	c.query = cfg.Query && c.IsTooOld()
	if desc.MaxMessageSize > 0 {
		c.maxRequest = int(desc.MaxMessageSize)
	}
	c.packer = newPacker(cfg, reply)
	return nil
}

// NotLoadBalancedError refuses a server whose hello has no serviceId, although loadBalanced=true.
type NotLoadBalancedError struct{}

// Error returns the specification's text.
func (*NotLoadBalancedError) Error() string {
	return "Driver attempted to initialize in load balancing mode, but the server does not " +
		"support this mode."
}

// IsTooOld reports whether the server says that it does not speak OP_MSG.
func (c *Conn) IsTooOld() bool { return c.desc.MaxWireVersion < wireVersionMsg }

// exchange sends a message of any kind and returns the reply. The deadline and the cancellation
// of ctx apply.
func (c *Conn) exchange(ctx context.Context, msg []byte) (bson.Raw, error) {
	r := c.begin(ctx)
	defer r.end()
	if err := c.write(ctx, msg); err != nil {
		return nil, asHello(err)
	}
	reply, _, err := c.readReply(ctx, false)
	r.complete = err == nil
	return reply, asHello(err)
}

// asHello marks a network error as one of hello. No operation was sent.
func asHello(err error) error {
	if e, ok := err.(*mongoerr.NetworkError); ok { //nolint:errorlint // made by fail, never wrapped
		e.Op, e.Sent = "hello", false
	}
	return err
}

// backpressure is the version of the client-backpressure specification that the driver supports.
const backpressure = "2"

// firstHello returns a connection's first message. It goes over OP_MSG, which all supported
// servers speak, unless Config.Query says otherwise. login, if it is not nil, adds its first
// message.
func firstHello(cfg Config, login *auth.State) ([]byte, error) {
	b := new(bson.Builder)
	if !cfg.Query {
		b.Reset(wire.BeginMsg(nil, 0))
	}
	if cfg.LoadBalanced || cfg.ServerAPI != nil {
		b.Int32("hello", 1)
	} else {
		b.Int32("isMaster", 1).Bool("helloOk", true)
	}
	appendHandshake(b, cfg)
	if login != nil {
		if err := login.AppendHello(b); err != nil {
			return nil, err
		}
	}
	if cfg.Query {
		return query(b), nil
	}
	return endHello(b, cfg.ServerAPI), nil
}

// query completes a hello for OP_QUERY.
func query(b *bson.Builder) []byte {
	return wire.Append(nil, wire.Header{}, &wire.Query{
		Flags: wire.SecondaryOK, Collection: "admin.$cmd", Return: -1, Query: b.Finish(),
	})
}

func appendHandshake(b *bson.Builder, cfg Config) {
	client := cfg.Metadata
	if client == nil {
		client = anonymous
	}
	b.Document("client", client())
	appendCompression(b, cfg.Compressors)
	b.String("backpressure", backpressure)
	if cfg.LoadBalanced {
		b.Bool("loadBalanced", true)
	}
}

// anonymous returns the client document of a program without a name.
var anonymous = sync.OnceValue(func() bson.Raw {
	doc, err := metadata.Client{Host: metadata.ThisHost()}.Document()
	if err != nil {
		panic("bug: " + err.Error())
	}
	return doc
})

// endHello completes a hello that was begun as an OP_MSG.
func endHello(b *bson.Builder, api *ServerAPI) []byte {
	appendAPI(b, api)
	b.String("$db", "admin")
	b.Finish()
	msg := b.Bytes()
	wire.EndMsg(msg)
	return msg
}

// appendAPI declares the stable API, if there is one.
func appendAPI(b *bson.Builder, api *ServerAPI) {
	if api != nil {
		api.AppendTo(b)
	}
}

// AppendTo appends what declares the API to a command.
func (api *ServerAPI) AppendTo(b *bson.Builder) {
	b.String("apiVersion", api.Version)
	if api.Strict != nil {
		b.Bool("apiStrict", *api.Strict)
	}
	if api.DeprecationErrors != nil {
		b.Bool("apiDeprecationErrors", *api.DeprecationErrors)
	}
}

// Hello asks the server for its state, for a monitor: with `hello` if the server understands it,
// else with the legacy command. The first hello's own fields are not repeated. Errors are as in
// RoundTrip.
func (c *Conn) Hello(ctx context.Context) (bson.Raw, error) {
	if c.query {
		return c.exchange(ctx, query(bson.NewBuilder(nil).Int32("isMaster", 1)))
	}
	b := bson.NewBuilder(wire.BeginMsg(nil, 0))
	c.beginHello(b)
	reply, err := c.RoundTrip(ctx, endHello(b, c.api))
	return reply, asHello(err)
}

// beginHello appends the command. Each hello of a monitor says that it understands hello.
func (c *Conn) beginHello(b *bson.Builder) {
	if c.desc.HelloOK || c.desc.ServiceID != (bson.ObjectID{}) || c.api != nil {
		b.Int32("hello", 1)
	} else {
		b.Int32("isMaster", 1)
	}
	b.Bool("helloOk", true)
}
