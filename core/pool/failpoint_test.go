package pool_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/conn/metadata"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// failPoint is the failCommand fail point of a server, as a test configures it.
type failPoint struct {
	Mode json.RawMessage
	Data struct {
		FailCommands    []string
		AppName         string
		CloseConnection bool
		BlockConnection bool
		BlockTimeMS     int
		ErrorCode       int32
	}

	mu   sync.Mutex
	left int // how often it still applies; < 0: always
}

// connectServer starts a server with the file's fail point, and connects to it as the driver does.
func connectServer(t *testing.T, c cmapFile) connector {
	fp := c.FailPoint
	var mode struct{ Times int }
	if json.Unmarshal(fp.Mode, &mode) != nil {
		mode.Times = -1 // "alwaysOn"
	}
	fp.left = mode.Times
	client, err := metadata.Client{AppName: c.PoolOptions.AppName}.Document()
	if err != nil {
		t.Fatal(err)
	}
	server := fakemongo.NewServer(t, nil)
	server.Handle("hello", func(cmd *fakemongo.Command) fakemongo.Reply {
		return fp.answer(server, cmd)
	})
	return func(ctx context.Context, id uint64) (pool.Resource, error) {
		return conn.Dial(ctx, "a:27017", conn.Config{ID: id, Metadata: func() bson.Raw {
			return client
		}, Dialer: server.Dial})
	}
}

func (f *failPoint) answer(s *fakemongo.Server, cmd *fakemongo.Command) fakemongo.Reply {
	if !f.meets(cmd) {
		return s.Default(cmd)
	}
	reply := s.Default(cmd)
	switch {
	case f.Data.CloseConnection:
		reply = fakemongo.Drop()
	case f.Data.ErrorCode != 0:
		reply = fakemongo.Error(f.Data.ErrorCode, "FailPoint",
			"Failing command via 'failCommand' failpoint")
	}
	if f.Data.BlockConnection {
		reply = reply.After(time.Duration(f.Data.BlockTimeMS) * time.Millisecond)
	}
	return reply
}

func (f *failPoint) meets(cmd *fakemongo.Command) bool {
	name := cmd.Name
	if name == "ismaster" {
		name = "isMaster"
	}
	if !slices.Contains(f.Data.FailCommands, name) {
		return false
	}
	if f.Data.AppName != "" {
		app, _ := cmd.Body.Lookup("client", "application", "name")
		if text, _ := app.Str(); text != f.Data.AppName {
			return false
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left > 0 {
		f.left--
		return true
	}
	return f.left < 0
}
