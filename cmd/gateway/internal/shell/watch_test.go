package shell

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// quiet streams changes of which none passes: its messages have a token only.
type quiet struct {
	mooringv1.UnimplementedChangeStreamServiceServer

	tokens chan bson.Raw
	after  chan bson.Raw // which the requests name
}

func (q *quiet) Watch(
	r *mooringv1.WatchRequest, stream grpc.ServerStreamingServer[mooringv1.WatchResponse],
) error {
	q.after <- r.GetStartAfter().GetBson()
	for {
		select {
		case token := <-q.tokens:
			m := &mooringv1.WatchResponse{ResumeToken: document(token)}
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// TestPositionWithoutChanges checks that a watch keeps its first position at once, and a newer one
// every few seconds, although it prints nothing; and that the next one begins there.
func TestPositionWithoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quiet{tokens: make(chan bson.Raw), after: make(chan bson.Raw, 1)}
		server := grpc.NewServer()
		mooringv1.RegisterChangeStreamServiceServer(server, q)
		dial := serve(t, server, &atomic.Bool{})
		path := filepath.Join(t.TempDir(), "state")
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		watch.AllFlags(flags)
		for name, value := range map[string]string{
			"continue": path, "address": "http://10.0.0.1:27080",
		} {
			if err := flags.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
		begin := func() (end func()) {
			ctx, cancel := context.WithCancel(t.Context())
			s := &session{
				Invocation: Invocation{
					Flags: flags, Operands: []string{"a.b"}, Stdout: io.Discard,
				},
				options: []grpc.DialOption{dial},
			}
			done := make(chan error)
			go func() {
				done <- runWatch(ctx, s)
				s.close()
			}()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Errorf("the watch ends with %v", err)
				}
			}
		}
		token := func(n int32) bson.Raw { return bson.NewBuilder(nil).Int32("t", n).Finish() }
		kept := func(what string, want bson.Raw) {
			t.Helper()
			synctest.Wait()
			got, err := (&watched{Watching: "a.b"}).load(path)
			if err != nil || !bytes.Equal(got.GetBson(), want) {
				t.Errorf("%s: the file has %v, %v; want %v", what, got, err, want)
			}
		}

		end := begin()
		if after := <-q.after; after != nil {
			t.Errorf("the first watch begins after %v", after)
		}
		q.tokens <- token(1)
		kept("the first token", token(1))
		q.tokens <- token(2)
		kept("another one at once", token(1))
		time.Sleep(saveEvery) //nolint:forbidigo // fake time
		q.tokens <- token(3)
		kept("one after a while", token(3))
		end()
		end = begin()
		if after := <-q.after; !bytes.Equal(after, token(3)) {
			t.Errorf("the next watch begins after %v, want %v", after, token(3))
		}
		end()
	})
}
