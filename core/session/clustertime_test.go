package session_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/session"
)

// at returns a $clusterTime with a signature that tells who sent it.
func at(t, i uint32, signature string) bson.Raw {
	return bson.NewBuilder(nil).Timestamp("clusterTime", t, i).
		OpenDocument("signature").String("hash", signature).Close().Finish()
}

func reply(doc bson.Raw) bson.Raw {
	return bson.NewBuilder(nil).Int32("ok", 0).Document("$clusterTime", doc).Finish()
}

// Driver Sessions, "Gossipping the Cluster Time": times compare by their timestamps only.
func TestAfter(t *testing.T) {
	none := session.ClusterTime{}
	time := func(t, i uint32) session.ClusterTime { return session.NewClusterTime(at(t, i, "x")) }
	tests := []struct {
		a, b session.ClusterTime
		want bool // a is after b
	}{
		{none, none, false},
		{time(1, 1), none, true},
		{time(0, 0), none, true},
		{none, time(1, 1), false},
		{time(2, 1), time(1, 9), true},
		{time(1, 9), time(2, 1), false},
		{time(1, 2), time(1, 1), true},
		{time(1, 1), time(1, 2), false},
		{time(1, 1), session.NewClusterTime(at(1, 1, "y")), false},
		{time(1<<31, 0), time(1, 0), true}, // unsigned
	}
	for _, tt := range tests {
		if got := tt.a.After(tt.b); got != tt.want {
			t.Errorf("%v after %v = %v, want %v", tt.a, tt.b, got, tt.want)
		}
		later := tt.b
		if tt.want {
			later = tt.a
		}
		if got := session.Later(tt.b, tt.a); !bytes.Equal(got.Document(), later.Document()) {
			t.Errorf("Later(%v, %v) = %v", tt.b, tt.a, got)
		}
	}
}

// of returns the cluster time of a reply.
func of(reply bson.Raw) session.ClusterTime {
	c, _ := session.Times(reply)
	return c
}

func TestTimes(t *testing.T) {
	for name, doc := range map[string]bson.Raw{
		"none":            bson.NewBuilder(nil).Int32("ok", 1).Finish(),
		"no document":     bson.NewBuilder(nil).Int32("$clusterTime", 1).Finish(),
		"no time in it":   reply(bson.NewBuilder(nil).Int32("x", 1).Finish()),
		"another type":    reply(bson.NewBuilder(nil).Int64("clusterTime", 1).Finish()),
		"nothing at all":  nil,
		"an empty answer": bson.NewBuilder(nil).Finish(),
		"a large one":     reply(at(7, 8, strings.Repeat("x", 5<<20))),
	} {
		if c := of(doc); !c.IsZero() || c.Document() != nil {
			t.Errorf("%s: Times() = %v, want none", name, c)
		}
		b := bson.NewBuilder(nil)
		of(doc).Append(b)
		if cmd := b.Finish(); !cmd.IsEmpty() {
			t.Errorf("%s: the command has %v", name, cmd)
		}
	}
	// The document goes back as it came, signature included.
	doc := at(7, 8, "signed")
	b := bson.NewBuilder(nil)
	of(reply(doc)).Append(b)
	if v, _ := b.Finish().Lookup("$clusterTime"); !bytes.Equal(v.Data, doc) {
		t.Errorf("$clusterTime is %v, want %v", v, doc)
	}
}

func TestClock(t *testing.T) {
	var c session.Clock
	if !c.Now().IsZero() {
		t.Errorf("Now() = %v, want none", c.Now())
	}
	if c.Advance(session.ClusterTime{}); !c.Now().IsZero() {
		t.Errorf("Now() = %v, want none", c.Now())
	}
	first := at(5, 5, "first")
	buffer := bytes.Clone(first)
	c.Advance(session.NewClusterTime(buffer))
	clear(buffer) // the clock has a copy
	for _, earlier := range []bson.Raw{
		at(5, 4, "earlier"), at(4, 9, "earlier"), at(5, 5, "the same"),
	} {
		c.Advance(session.NewClusterTime(earlier))
	}
	c.Advance(session.ClusterTime{})
	if !bytes.Equal(c.Now().Document(), first) {
		t.Errorf("Now() = %v, want the first", c.Now())
	}
	later := at(5, 6, "later")
	if c.Advance(session.NewClusterTime(later)); !bytes.Equal(c.Now().Document(), later) {
		t.Errorf("Now() = %v, want the later one", c.Now())
	}
}

func TestClockGoesForwardOnly(t *testing.T) {
	var c session.Clock
	var wg sync.WaitGroup
	for g := range uint32(4) {
		wg.Go(func() {
			var last session.ClusterTime
			for i := range uint32(1000) {
				c.Advance(session.NewClusterTime(at(i, g, "x")))
				now := c.Now()
				if last.After(now) {
					t.Error("the clock went back")
				}
				last = now
			}
		})
	}
	wg.Wait()
	if want := session.NewClusterTime(at(999, 3, "x")); want.After(c.Now()) || c.Now().After(want) {
		t.Errorf("Now() = %v, want %v", c.Now(), want)
	}
}

func FuzzTimes(f *testing.F) {
	f.Add([]byte(reply(at(1, 2, "x"))))
	f.Add([]byte(bson.NewBuilder(nil).Int32("$clusterTime", 1).Finish()))
	f.Fuzz(func(t *testing.T, doc []byte) {
		c := of(doc)
		if c.IsZero() {
			return
		}
		if again := session.NewClusterTime(c.Document()); c.After(again) || again.After(c) {
			t.Errorf("%v is read again as %v", c, again)
		}
	})
}
