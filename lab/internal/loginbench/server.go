package loginbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/xdg-go/scram"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/wire"
)

const (
	user       = "app"
	password   = "pencil"
	iterations = 15_000 // MongoDB's own
	hold       = 3 * time.Second
)

// Serve runs a server that knows the login of one user by SCRAM-SHA-256, and one document. It
// prints its address, and runs until ctx ends.
func Serve(ctx context.Context, _ []string) error {
	known, err := scram.SHA256.NewClientUnprepped(user, password, "")
	if err != nil {
		return err
	}
	stored, err := known.GetStoredCredentialsWithError(scram.KeyFactors{
		Salt: "salt of the user", Iters: iterations,
	})
	if err != nil {
		return err
	}
	s, err := scram.SHA256.NewServer(func(string) (scram.StoredCredentials, error) {
		return stored, nil
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	fmt.Println(l.Addr()) //nolint:forbidigo // for the process that started this one
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go (&session{nc: nc, scram: s}).serve()
	}
}

// session serves one connection.
type session struct {
	nc           net.Conn
	scram        *scram.Server
	conversation *scram.ServerConversation
}

func (s *session) serve() {
	defer func() { _ = s.nc.Close() }()
	r := bufio.NewReader(s.nc)
	for {
		buf, err := wire.ReadFrom(r, wire.DefaultMaxMessageSize)
		if err != nil {
			return
		}
		h, m, err := wire.Parse(buf)
		if err != nil {
			return
		}
		var reply wire.Message
		switch m := m.(type) {
		case *wire.Msg:
			reply = &wire.Msg{Body: s.answer(m.Body)}
		case *wire.Query:
			reply = &wire.Reply{Documents: []bson.Raw{s.answer(m.Query)}}
		default:
			return
		}
		if _, err := s.nc.Write(wire.Append(nil, wire.Header{ResponseTo: h.RequestID},
			reply)); err != nil {
			return
		}
	}
}

func (s *session) answer(command bson.Raw) bson.Raw {
	b := bson.NewBuilder(nil)
	switch command.FirstKey() {
	case "hello", "isMaster", "ismaster":
		b.Bool("helloOk", true).Bool("isWritablePrimary", true).Bool("ismaster", true)
		b.Int32("maxBsonObjectSize", 16<<20).Int32("maxMessageSizeBytes",
			48_000_000).Int32("maxWriteBatchSize", 100_000)
		b.Int32("minWireVersion", 0).Int32("maxWireVersion", 21)
		if command.Has("saslSupportedMechs") {
			b.OpenArray("saslSupportedMechs").String("", "SCRAM-SHA-256").Close()
		}
		if v, ok := command.Lookup("speculativeAuthenticate"); ok {
			begun, _ := v.Document()
			b.Document("speculativeAuthenticate", s.step(begun))
		}
	case "ping":
		<-time.After(hold)
	case "find":
		b.OpenDocument("cursor").Int64("id", 0).String("ns", "shop.orders").OpenArray("firstBatch")
		b.OpenDocument("").Int32("_id", 1).Int32("total", 42).Close().Close().Close()
	case "saslStart", "saslContinue":
		b.AppendElements(s.step(command))
	}
	return b.Int32("ok", 1).Finish()
}

func (s *session) step(command bson.Raw) bson.Raw {
	if command.FirstKey() == "saslStart" {
		s.conversation = s.scram.NewConversation()
	}
	v, _ := command.Lookup("payload")
	_, payload, _ := v.Binary()
	answer, err := s.conversation.Step(string(payload))
	if err != nil {
		answer = "e=other-error"
	}
	return bson.NewBuilder(nil).Int32("conversationId", 1).Bool("done", s.conversation.Done()).
		Binary("payload", bson.SubtypeGeneric, []byte(answer)).Finish()
}
