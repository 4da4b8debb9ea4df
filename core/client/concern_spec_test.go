package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/spectest"
)

// concernCase is a case of read-write-concern/tests/document: what a concern looks like in a
// command.
type concernCase struct {
	Description  string
	Valid        bool
	ReadConcern  *struct{ Level string }
	WriteConcern *struct {
		W          any
		WTimeoutMS *int64
		Journal    *bool
	}
	ReadConcernDocument, WriteConcernDocument json.RawMessage
	IsServerDefault, IsAcknowledged           *bool
}

func TestConcernDocuments(t *testing.T) {
	const suite = "read-write-concern"
	for _, file := range spectest.Files(t, suite) {
		if filepath.Base(filepath.Dir(file)) != "document" {
			continue // core/connstring has the strings, the unified runner the operations
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f struct{ Tests []concernCase }
		if err := json.Unmarshal(data, &f); err != nil {
			t.Fatal(err)
		}
		for _, c := range f.Tests {
			spectest.Case(t, suite, file, c.Description, func(t *testing.T) {
				run(t, nil, func(t *testing.T, srv *fakemongo.Server, cl *client.Client) {
					if c.ReadConcern != nil {
						c.read(t, srv, cl)
					} else {
						c.write(t, srv, cl)
					}
				})
			})
		}
	}
}

func (c *concernCase) read(t *testing.T, srv *fakemongo.Server, cl *client.Client) {
	_, _, err := cl.FindOne(t.Context(), orders, client.FindOptions{
		Common: client.Common{ReadConcern: &client.ReadConcern{Level: c.ReadConcern.Level}},
	})
	if (err == nil) != c.Valid {
		t.Fatalf("FindOne() = %v, want success %v", err, c.Valid)
	}
	c.check(t, srv.Commands("find")[0], "readConcern", c.ReadConcernDocument)
}

func (c *concernCase) write(t *testing.T, srv *fakemongo.Server, cl *client.Client) {
	wc := client.WriteConcern{
		WTimeoutMS: c.WriteConcern.WTimeoutMS, Journal: c.WriteConcern.Journal,
	}
	switch w := c.WriteConcern.W.(type) {
	case float64:
		wc.Nodes = new(int32(w))
	case string:
		wc.Tag = w
	}
	result, err := cl.InsertOne(t.Context(), orders, doc(t, `{"_id":1}`),
		client.InsertOneOptions{Common: client.Common{WriteConcern: &wc}})
	if !c.Valid {
		if _, ok := errors.AsType[*client.ArgumentError](err); !ok {
			t.Errorf("InsertOne() = %v, want an ArgumentError", err)
		}
		if _, err := client.New(connstring.Config{
			Hosts: []address.Address{"a:27017"}, WriteConcern: wc,
		}, client.Options{}); err == nil {
			t.Error("New() with this write concern: no error")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.Ping(t.Context()); err != nil { // the server has read what came before
		t.Fatal(err)
	}
	cmd := srv.Commands("insert")[0]
	if c.IsAcknowledged != nil &&
		(result.Acknowledged != *c.IsAcknowledged || cmd.MoreToCome == *c.IsAcknowledged) {
		t.Errorf("acknowledged %v, moreToCome %v, want acknowledged %v", result.Acknowledged,
			cmd.MoreToCome, *c.IsAcknowledged)
	}
	c.check(t, cmd, "writeConcern", c.WriteConcernDocument)
}

// check compares the concern of a command; the server's default is one that is not there.
func (c *concernCase) check(
	t *testing.T, cmd fakemongo.Command, name string, want json.RawMessage,
) {
	t.Helper()
	v, sent := cmd.Body.Lookup(name)
	if c.IsServerDefault != nil && *c.IsServerDefault == sent {
		t.Errorf("%s sent: %v, want the server's default: %v", name, sent, *c.IsServerDefault)
	}
	if !sent {
		return
	}
	d, _ := v.Document()
	w, err := extjson.Parse(nil, bytes.TrimSpace(want))
	if err != nil {
		t.Fatal(err)
	}
	var got, wanted map[string]any // the order and the widths of the numbers do not matter
	for to, from := range map[*map[string]any]string{&got: text(t, d), &wanted: text(t, w)} {
		if err := json.Unmarshal([]byte(from), to); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(wanted)
	if !bytes.Equal(a, b) {
		t.Errorf("%s = %s, want %s", name, a, b)
	}
}
