package conn_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/compress"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/internal/mongotest"
)

// large returns a reply with so many bytes of padding.
func large(bytesOf int) bson.Raw {
	return bson.NewBuilder(nil).Int32("n", 7).Double("ok", 1).
		String("pad", string(bytes.Repeat([]byte("x"), bytesOf))).Finish()
}

// admitting counts what a connection asks for.
type admitting struct {
	asked []int
	done  int
	err   error
}

func (a *admitting) admit(_ context.Context, size int) (func(), error) {
	a.asked = append(a.asked, size)
	return func() { a.done++ }, a.err
}

// TestAdmit checks that a connection asks before it reads a large reply, and for no small one.
func TestAdmit(t *testing.T) {
	s := mongotest.NewServer(t, nil)
	a := &admitting{}
	c := dial(t, s, conn.Config{Admit: a.admit})
	const header = 16 + 4 + 1 // of the message, its flags, and the kind of its section
	least := conn.LargeReply - header - len(large(0))
	for _, test := range []struct{ pad, asked int }{{least - 1, 0}, {least, 1}, {1 << 20, 1}} {
		*a = admitting{}
		reply := large(test.pad)
		s.Handle("find", mongotest.Always(mongotest.Document(reply)))
		if _, err := c.RoundTrip(t.Context(), message("find", 0)); err != nil {
			t.Fatal(err)
		}
		want := slices.Repeat([]int{len(reply) + header}, test.asked)
		if !slices.Equal(a.asked, want) || a.done != test.asked {
			t.Errorf("%d bytes of padding: asked for %v, then %d are done; want %v", test.pad,
				a.asked, a.done, want)
		}
	}

	*a = admitting{err: errors.New("no room")}
	_, err := c.RoundTrip(t.Context(), message("find", 0))
	if !errors.Is(err, a.err) || c.Alive() {
		t.Errorf("RoundTrip() = %v, alive %t; want the error, and a broken connection", err,
			c.Alive())
	}
}

// TestAdmitCompressed checks that a connection asks again for what a small message expands to.
func TestAdmitCompressed(t *testing.T) {
	s := supporting(t, "zlib")
	reply := large(1 << 20)
	s.Handle("find", mongotest.Always(mongotest.Document(reply)))
	a := &admitting{}
	cfg := conn.Config{Compressors: []string{"zlib"}, Admit: a.admit}
	_, c := dialCompressing(t, cfg, s, always(compress.Zlib))
	if _, err := c.RoundTrip(t.Context(), message("find", 0)); err != nil {
		t.Fatal(err)
	}
	if len(a.asked) != 1 || a.asked[0] < len(reply) || a.done != 1 {
		t.Errorf("asked for %v, want %d bytes and a little more", a.asked, len(reply))
	}
	a.err = errors.New("no room")
	if _, err := c.RoundTrip(t.Context(), message("find", 0)); !errors.Is(err, a.err) {
		t.Errorf("RoundTrip() = %v, want the error", err)
	}
}
