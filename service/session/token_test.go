package session

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/service/seal"
)

func FuzzDecodeClaim(f *testing.F) {
	c := claim{causal: true, state: session.State{
		ID: bson.UUID{1, 2}, OperationTime: session.Timestamp{T: 3, I: 4},
		SnapshotTime: session.Timestamp{T: 5, I: 6},
		ClusterTime:  bson.NewBuilder(nil).Timestamp("clusterTime", 7, 8).Finish(),
	}}
	f.Add(c.encode())
	f.Add((&claim{snapshot: true}).encode())
	f.Add([]byte{flagCausal})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeClaim(b)
		if err != nil {
			return
		}
		again, err := decodeClaim(c.encode())
		if err != nil || !bytes.Equal(again.encode(), c.encode()) {
			t.Errorf("%v is read again as %v, %v", c, again, err)
		}
	})
}

// TestTokens checks what a token carries, and for how long.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, err := seal.NewRing()
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := connstring.Parse("mongodb://db.test")
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(cfg, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := NewSessions(c, keys, "one")
		started, err := s.Start(session.Options{})
		if err != nil {
			t.Fatal(err)
		}
		started.AdvanceOperationTime(session.Timestamp{T: 3, I: 4})
		large := bson.NewBuilder(nil).Timestamp("clusterTime", 7, 8).
			Binary("x", 0, make([]byte, 2000)).Finish()
		started.AdvanceClusterTime(session.NewClusterTime(large))
		token := s.Seal("p", started)
		if len(token) > seal.MaxTokenBytes {
			t.Errorf("a token of %d bytes", len(token))
		}
		opened, err := s.Open("p", token)
		if err != nil || opened.ID() != started.ID() ||
			opened.OperationTime() != (session.Timestamp{T: 3, I: 4}) {
			t.Errorf("Open = %v, %v, want the session", opened, err)
		}
		if _, err := NewSessions(c, keys, "two").Open("p", token); err == nil {
			t.Error("another deployment opens the token")
		}
		time.Sleep(Life + seal.MaxSkew - time.Millisecond) //nolint:forbidigo // fake time
		if _, err := s.Open("p", token); err != nil {
			t.Errorf("Open = %v at the end of its life", err)
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // fake time
		if _, err := s.Open("p", token); err == nil {
			t.Error("an expired token opens")
		}
	})
}
