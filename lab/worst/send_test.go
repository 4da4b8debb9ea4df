package worst_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/lab/internal/gateway"
)

// script answers every command as if the server had done it. It finds nothing, or documents of a
// shape.
type script struct {
	shape    shape
	document bson.Raw     // of a reply; nil: nothing is found
	answered atomic.Int64 // bytes
	asked    atomic.Int64 // commands
}

func newScript(s shape) *script {
	c := &script{shape: s}
	if s.reply {
		c.document = s.raw(func(b []byte, _ int) bool { return len(b) < fits })
	}
	return c
}

// listen starts the server, and returns its connection string.
func (c *script) listen(t *testing.T) string {
	t.Helper()
	s, err := fakemongo.Listen("127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	done := fakemongo.OK(func(b *bson.Builder) {
		b.Int32("n", 1).Int32("nModified", 1).Null("value")
		none := bson.Array(bson.NewBuilder(nil).Finish())
		b.Array("values", none).Array("databases", none)
		b.Document("cursor", bson.NewBuilder(nil).Int64("id", 0).String("ns", "d.c").
			Array("firstBatch", none).Finish())
	})
	s.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		switch cmd.Name {
		case "hello", "isMaster", "ismaster", "ping", "endSessions", "killCursors":
			return next(cmd)
		}
		c.asked.Add(1)
		if cmd.Name == "insert" {
			return next(cmd)
		}
		if c.document != nil {
			c.answered.Add(int64(len(c.document)))
			return c.shape.replyOf(c.document, cmd.Name)
		}
		return done
	})
	return s.URI()
}

// sender sends requests, whole or without their last byte.
type sender struct {
	gateway    *gateway.Gateway
	unfinished bool
	http, grpc *http.Client
}

func newSender(g *gateway.Gateway, unfinished bool) *sender {
	plain := new(http.Protocols)
	plain.SetUnencryptedHTTP2(true)
	return &sender{
		gateway: g, unfinished: unfinished,
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		grpc: &http.Client{Transport: &http.Transport{Protocols: plain}},
	}
}

func (s *sender) close() {
	s.http.CloseIdleConnections()
	s.grpc.CloseIdleConnections()
}

// crowd sends requests in turn, 16 at once, and returns how they were answered.
func (s *sender) crowd(ctx context.Context, requests []*request) []string {
	answers := make([]string, crowd)
	var sending sync.WaitGroup
	for i := range answers {
		sending.Go(func() { answers[i] = s.send(ctx, requests[i%len(requests)]) })
	}
	sending.Wait()
	return answers
}

// send sends a request, and returns the status of its answer, or "cut" if there is none.
func (s *sender) send(ctx context.Context, q *request) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, base := s.http, s.gateway.REST
	if q.grpc {
		client, base = s.grpc, "http://"+s.gateway.GRPC
	}
	r, err := http.NewRequestWithContext(ctx, q.method, base+q.path, s.reader(ctx, q.body))
	if err != nil {
		return err.Error()
	}
	r.ContentLength = int64(len(q.body))
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	resp, err := client.Do(r)
	if err != nil {
		return "cut"
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	for _, h := range []http.Header{resp.Trailer, resp.Header} {
		if status := h.Get("Grpc-Status"); status != "" {
			return "status " + status
		}
	}
	return strconv.Itoa(resp.StatusCode)
}

// pause is how long an unfinished request stays as it is, once all but its last byte is sent.
const pause = 2 * time.Second

var errUnfinished = errors.New("the rest does not come")

// reader returns a body, which http cannot send again.
func (s *sender) reader(ctx context.Context, body []byte) io.Reader {
	if !s.unfinished {
		return &piece{ctx: ctx, left: body}
	}
	return &piece{ctx: ctx, left: body[:len(body)-1], unfinished: true}
}

type piece struct {
	ctx        context.Context //nolint:containedctx // of the request that it is the body of
	left       []byte
	unfinished bool
}

func (p *piece) Read(b []byte) (int, error) {
	if len(p.left) > 0 {
		n := copy(b, p.left)
		p.left = p.left[n:]
		return n, nil
	}
	if !p.unfinished {
		return 0, io.EOF
	}
	select {
	case <-time.After(pause):
	case <-p.ctx.Done():
	}
	return 0, errUnfinished
}
