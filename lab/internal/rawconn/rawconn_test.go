package rawconn_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/mongotest"
	"github.com/mooringdb/mooring/internal/unified/deployment"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
)

var _ deployment.Engine = (*rawconn.Engine)(nil)

// TestEngine runs commands on a server, some at the same time, and after connections were lost.
func TestEngine(t *testing.T) {
	s := mongotest.NewTCPServer(t, nil)
	e := rawconn.NewEngine(string(s.Address()))
	defer e.Close()
	command := func(name string) bson.Raw {
		return bson.NewBuilder(nil).String(name, "c").String("$db", "db").Finish()
	}
	docs := mongotest.Numbered(1, 2, 0)
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

// TestReplies has replies that are none refused.
func TestReplies(t *testing.T) {
	for name, bytes := range map[string][]byte{
		"too short": {3, 0, 0, 0}, "too long": {0, 0, 0, 0x7f}, "cut off": {40, 0, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			go func() {
				_, _ = io.ReadFull(server, make([]byte, 21))
				_, _ = server.Write(bytes)
				_ = server.Close()
			}()
			if reply, err := rawconn.RoundTrip(client, rawconn.Msg(1, nil, nil)); err == nil {
				t.Errorf("RoundTrip() = %v", reply)
			}
		})
	}
	for _, reply := range [][]byte{make([]byte, 20), make([]byte, 50)} {
		if doc, err := rawconn.Document(reply); err == nil {
			t.Errorf("Document(%v) = %v", reply, doc)
		}
	}
}
