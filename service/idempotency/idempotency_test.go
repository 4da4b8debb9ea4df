package idempotency_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/seal"
)

func newClient(t *testing.T) *client.Client {
	t.Helper()
	cfg, err := connstring.Parse("mongodb://db.test")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newSchedule(t *testing.T, secret byte) idempotency.Schedule {
	t.Helper()
	key, err := seal.NewKey(append(make([]byte, 31), secret))
	if err != nil {
		t.Fatal(err)
	}
	schedule, err := idempotency.NewSchedule(key)
	if err != nil {
		t.Fatal(err)
	}
	return schedule
}

type begun struct {
	id    bson.ObjectID
	other bson.ObjectID
}

func begin(
	t *testing.T, k *idempotency.Keys, principal, key, operation, content string,
) (begun, string) {
	t.Helper()
	w, err := k.Begin(principal, key, operation, call.Digest(sha256.Sum256([]byte(content))))
	if err != nil {
		return begun{}, string(rpcerr.HTTP(err).Body.GetError().GetReason())
	}
	return begun{w.NewID(0), w.NewID(1)}, ""
}

// TestBegin: the same call has the same ids at every replica, and no other call has them.
func TestBegin(t *testing.T) {
	c := newClient(t)
	one := idempotency.New(c, newSchedule(t, 1))
	first, _ := begin(t, one, "p", "k", "insert", "body")
	if first.id == first.other || first.id.IsZero() {
		t.Errorf("the ids are %v", first)
	}
	for name, test := range map[string]struct {
		keys                               *idempotency.Keys
		principal, key, operation, content string
		same                               bool
	}{
		"again":           {one, "p", "k", "insert", "body", true},
		"another replica": {idempotency.New(c, newSchedule(t, 1)), "p", "k", "insert", "body", true},
		"another secret":  {idempotency.New(c, newSchedule(t, 2)), "p", "k", "insert", "body", false},
		"principal":       {idempotency.New(c, newSchedule(t, 1)), "q", "k", "insert", "body", false},
		"key":             {one, "p", "l", "insert", "body", false},
		"operation":       {idempotency.New(c, newSchedule(t, 1)), "p", "k", "update", "body", false},
		"content":         {idempotency.New(c, newSchedule(t, 1)), "p", "k", "insert", "bodies", false},
	} {
		if got, _ := begin(t, test.keys, test.principal, test.key, test.operation,
			test.content); (got == first) != test.same {
			t.Errorf("%s: the ids are %v, those of the first call are %v", name, got, first)
		}
	}
	for name, want := range map[string]string{
		"": "InvalidArgument", strings.Repeat("k", 256): "InvalidArgument", strings.Repeat("k", 255): "",
	} {
		if _, got := begin(t, one, "p", name, "insert", "body"); got != want {
			t.Errorf("a key of %d bytes: %q, want %q", len(name), got, want)
		}
	}
}

// TestReused: a key is refused for another call as long as it is remembered.
func TestReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := idempotency.New(newClient(t), newSchedule(t, 1))
		try := func(principal, key, operation, content, want string) {
			t.Helper()
			if _, got := begin(t, k, principal, key, operation, content); got != want {
				t.Errorf("%s %s %s %s: %q, want %q", principal, key, operation, content, got, want)
			}
		}
		try("p", "k", "insert", "body", "")
		try("p", "k", "insert", "other", "IdempotencyKeyReused")
		try("p", "k", "update", "body", "IdempotencyKeyReused")
		try("p", "k", "insert", "body", "")
		try("q", "k", "insert", "other", "")
		time.Sleep(idempotency.Life) //nolint:forbidigo // fake time
		try("p", "k", "insert", "other", "")
		// The oldest of too many are forgotten.
		for i := range 10_000 {
			try("p", fmt.Sprint("n", i), "insert", "body", "")
		}
		try("p", "k", "insert", "body", "")
		try("p", "n9999", "insert", "other", "IdempotencyKeyReused")
	})
}

// TestEnd: a key is free when the last of its calls has ended without sending anything.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := idempotency.New(newClient(t), newSchedule(t, 1))
		call := func(key, content string) func() {
			t.Helper()
			w, err := k.Begin("p", key, "insert", call.Digest(sha256.Sum256([]byte(content))))
			if err != nil {
				t.Fatal(err)
			}
			return w.End
		}
		refused := func() bool {
			_, reason := begin(t, k, "p", "k", "insert", "other")
			return reason == "IdempotencyKeyReused"
		}
		first, second, another := call("k", "body"), call("k", "body"), call("l", "body")
		if first(); !refused() {
			t.Error("the key is free while a call with it runs")
		}
		if second(); refused() {
			t.Error("the key is not free after its calls")
		}
		another()
		// The end of a call that was forgotten before changes nothing.
		late := call("m", "body")
		time.Sleep(idempotency.Life) //nolint:forbidigo // fake time
		call("n", "body")
		late()
		// Nor does it if the key has come again: that call runs.
		late = call("k", "body")
		time.Sleep(idempotency.Life) //nolint:forbidigo // fake time
		again := call("k", "body")
		if late(); !refused() {
			t.Error("the key is free while a call with it runs, after the end of one that was " +
				"forgotten")
		}
		again()
	})
}
