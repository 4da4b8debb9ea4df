package rawconn_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
)

var _ deployment.Engine = (*rawconn.Engine)(nil)

// TestEngine runs commands on a server, some at the same time, and after connections were lost.
func TestEngine(t *testing.T) {
	s := fakemongo.NewTCPServer(t, nil)
	e := rawconn.NewEngine(string(s.Address()))
	defer e.Close()
	command := func(name string) bson.Raw {
		return bson.NewBuilder(nil).String(name, "c").String("$db", "db").Finish()
	}
	docs := fakemongo.Numbered(1, 2, 0)
	reply, err := e.Run(command("insert"), map[string][]bson.Raw{"documents": docs})
	if v, _ := reply.Lookup("n"); err != nil || !v.Equal(bson.Int32Value(2)) {
		t.Fatalf("Run(insert) = %v, %v", reply, err)
	}
	if stored := s.Documents("db.c"); len(stored) != 2 || !bytes.Equal(stored[1], docs[1]) {
		t.Errorf("stored are %v", stored)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			reply, err := e.Run(command("find"), nil)
			if _, ok := reply.Lookup("cursor"); err != nil || !ok {
				t.Errorf("Run(find) = %v, %v", reply, err)
			}
		})
	}
	wg.Wait()
	s.SetDown(true)
	failed := 0
	for range 20 {
		if _, err := e.Run(command("find"), nil); err != nil {
			failed++
		}
	}
	if failed != 20 {
		t.Errorf("%d of 20 commands failed without a server", failed)
	}
	s.SetDown(false)
	if _, err := e.Run(command("find"), nil); err != nil {
		t.Errorf("Run() = %v after the server is back", err)
	}
}
