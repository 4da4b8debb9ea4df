package conn_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/compress"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// large returns a reply with so many bytes of padding.
func large(bytesOf int) bson.Raw {
	return bson.NewBuilder(nil).Int32("n", 7).Double("ok", 1).
		String("pad", string(bytes.Repeat([]byte("x"), bytesOf))).Finish()
}

// admitting counts what a connection asks for.
type admitting struct {
	asked   []int
	done    int
	dropped int // of those that are done
	fits    int // how many are asked for before err
	err     error
}

func (a *admitting) admit(_ context.Context, size int) (func(bool), error) {
	a.asked = append(a.asked, size)
	done := func(kept bool) {
		a.done++
		if !kept {
			a.dropped++
		}
	}
	if len(a.asked) <= a.fits {
		return done, nil
	}
	return done, a.err
}

// TestAdmit checks that a connection asks before it reads a large reply, and for no small one.
func TestAdmit(t *testing.T) {
	s := fakemongo.NewServer(t, nil)
	a := &admitting{}
	c := dial(t, s, conn.Config{Admit: a.admit})
	const header = 16 + 4 + 1 // of the message, its flags, and the kind of its section
	least := conn.LargeReply - header - len(large(0))
	for _, test := range []struct{ pad, asked int }{{least - 1, 0}, {least, 1}, {1 << 20, 1}} {
		*a = admitting{}
		reply := large(test.pad)
		s.Handle("find", fakemongo.Always(fakemongo.Document(reply)))
		if _, err := c.RoundTrip(t.Context(), message("find", 0)); err != nil {
			t.Fatal(err)
		}
		want := slices.Repeat([]int{len(reply) + header}, test.asked)
		if !slices.Equal(a.asked, want) || a.done != test.asked || a.dropped > 0 {
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
	s.Handle("find", fakemongo.Always(fakemongo.Document(reply)))
	a := &admitting{}
	cfg := conn.Config{Compressors: []string{"zlib"}, Admit: a.admit}
	_, c := dialCompressing(t, cfg, s, always(compress.Zlib))
	if _, err := c.RoundTrip(t.Context(), message("find", 0)); err != nil {
		t.Fatal(err)
	}
	if len(a.asked) != 1 || a.asked[0] < len(reply) || a.done != 1 || a.dropped > 0 {
		t.Errorf("asked for %v, want %d bytes and a little more", a.asked, len(reply))
	}
	// A large message is dropped when it has been expanded.
	*a = admitting{}
	reply = bson.NewBuilder(nil).Double("ok", 1).
		Binary("pad", bson.SubtypeGeneric, random(1<<20)).Finish()
	s.Handle("find", fakemongo.Always(fakemongo.Document(reply)))
	if _, err := c.RoundTrip(t.Context(), message("find", 0)); err != nil {
		t.Fatal(err)
	}
	if len(a.asked) != 2 || a.asked[0] < 1<<20 || a.done != 2 || a.dropped != 1 {
		t.Errorf("asked for %v, %d done, %d of them dropped; want 2, 2, 1", a.asked, a.done,
			a.dropped)
	}
	before := buffer.Lent()
	*a = admitting{fits: 1, err: errors.New("no room")} // for what it expands to
	_, err := c.RoundTrip(t.Context(), message("find", 0))
	if !errors.Is(err, a.err) || a.done != 1 || a.dropped != 1 || buffer.Lent() != before {
		t.Errorf("RoundTrip() = %v, want the error; %d done, %d of them dropped", err, a.done,
			a.dropped)
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}

// TestSpare checks that a connection asks for room before it compresses a large command, for at
// least what the result has, and returns it; and that the command is sent as it is if there is no
// room.
func TestSpare(t *testing.T) {
	for _, by := range []compress.ID{compress.Snappy, compress.Zlib, compress.Zstd} {
		s := supporting(t, by.String())
		s.Handle("find", fakemongo.Always(fakemongo.Document(large(0))))
		var asked []int
		done, room := 0, true
		cfg := conn.Config{
			Compressors: []string{by.String()},
			Spare: func(_ context.Context, size int) (func(), bool) {
				asked = append(asked, size)
				return func() { done++ }, room
			},
		}
		p, c := dialCompressing(t, cfg, s, always(none))
		for _, step := range []struct {
			size  int
			room  bool
			asked int
			want  string
		}{
			{1000, false, 0, "find by " + by.String()},
			{1 << 20, true, 1, "find by " + by.String()},
			{1 << 20, false, 1, "find"},
		} {
			asked, done, room = nil, 0, step.room
			msg := wire.BeginMsg(nil, 0)
			doc := bson.NewBuilder(nil).String("find", "c").String("$db", "d").
				String("pad", strings.Repeat("x", step.size)).Finish()
			msg = append(msg, doc...)
			wire.EndMsg(msg)
			if _, err := c.RoundTrip(t.Context(), msg); err != nil {
				t.Fatal(err)
			}
			came := strings.Split(p.requests(), ", ")
			if got := came[len(came)-1]; got != step.want || len(asked) != step.asked ||
				step.asked > 0 && (asked[0] < step.size || step.room != (done == 1)) {
				t.Errorf("%d bytes, room %t: it came as %q; asked for %v, %d returned; want %q",
					step.size, step.room, got, asked, done, step.want)
			}
		}
	}
}

// turn records whether it is held.
type turn struct {
	held  bool
	taken int
}

func (t *turn) Take() {
	if !t.held {
		t.taken++
	}
	t.held = true
}

func (t *turn) Yield() {}

func (t *turn) Leave() bool {
	held := t.held
	t.held = false
	return held
}

// watched notes whether a turn is held while the connection reads from its peer, which may block.
type watched struct {
	net.Conn
	turn *turn
	held bool
}

func (w *watched) Read(p []byte) (int, error) {
	w.held = w.held || w.turn.held
	return w.Conn.Read(p)
}

// TestLargeRepliesInTurns checks that a large reply is read in turns, that no turn is held while
// the connection waits, and that a small reply needs none.
func TestLargeRepliesInTurns(t *testing.T) {
	turns := &turn{}
	cfg := conn.Config{
		Admit: (&admitting{}).admit, Turn: func(context.Context) conn.Turn { return turns },
	}
	s := fakemongo.NewServer(t, nil)
	var read *watched
	cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := s.Dial(ctx, network, addr)
		read = &watched{Conn: nc, turn: turns}
		return read, err
	}
	piped, err := conn.Dial(t.Context(), s.Address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = piped.Close() })
	cfg.Dialer = nil
	overTCP := fakemongo.NewTCPServer(t, nil)
	tcp, err := conn.Dial(t.Context(), overTCP.Address(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tcp.Close() })
	for _, pad := range []int{10, 100 << 10, 3 << 20} {
		reply := large(pad)
		for name, side := range map[string]struct {
			*conn.Conn
			*fakemongo.Server
		}{"pipe": {piped, s}, "TCP": {tcp, overTCP}} {
			side.Handle("find", fakemongo.Always(fakemongo.Document(reply)))
			*turns = turn{}
			got, err := side.RoundTrip(t.Context(), message("find", 0))
			if err != nil || !bytes.Equal(got, reply) {
				t.Fatalf("%s: a reply of %d bytes: %d, %v", name, len(reply), len(got), err)
			}
			if isLarge := pad > conn.LargeReply; turns.held || (turns.taken > 0) != isLarge {
				t.Errorf("%s: a reply of %d bytes took %d turns, one is held: %t", name,
					len(reply), turns.taken, turns.held)
			}
		}
	}
	if read.held {
		t.Error("a turn is held while the connection waits")
	}
	overTCP.Handle("find", fakemongo.Always(fakemongo.DropInside(large(3<<20), 1<<20)))
	if _, err := tcp.RoundTrip(t.Context(), message("find", 0)); err == nil || turns.held {
		t.Errorf("half a reply: %v, a turn is held: %t", err, turns.held)
	}
}
