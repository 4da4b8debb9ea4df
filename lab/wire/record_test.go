package wire_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
)

// command is what went over the wire: the command's fields by their paths.
type command struct {
	name   string
	fields map[string]string
}

// recording is what one driver has sent for each operation, by the operation's name; nil: the
// driver does not have it.
type recording map[string][]command

// closing is the name of what is sent when the client is closed.
const closing = "closing the client"

// record runs all operations on a driver. The deployment is a replica set on an engine, so that
// sessions and retryable writes are part of what is compared. The collections are made anew before
// each operation.
func record(
	t *testing.T, on *deployment.Deployment,
	open func(context.Context, string) (driver, error), operations []operation,
) recording {
	t.Helper()
	ctx := t.Context()
	driver, err := open(ctx, on.URI(false, nil))
	if err != nil {
		t.Fatal(err)
	}
	out, seen := recording{}, seen{}
	for _, op := range operations {
		prepare(t, on)
		seen.next(on)
		known, err := driver.run(ctx, op)
		if err != nil {
			t.Logf("%s: %v", op.name, err) // what is compared was sent before
		}
		if known {
			out[op.name] = seen.some(on)
		}
	}
	seen.next(on)
	if err := driver.close(ctx); err != nil {
		t.Error(err)
	}
	out[closing] = seen.next(on)
	return out
}

// documents returns what is in a collection before each operation.
func documents() []bson.Raw {
	return []bson.Raw{
		d(`{"_id": 1, "a": 1, "l": [1, 2]}`), d(`{"_id": 2, "a": 2}`), d(`{"_id": 3, "a": 3}`),
		d(`{"_id": 4, "a": 1}`), d(`{"_id": 5, "a": 1}`),
	}
}

// prepare gives the collections of the operations their documents, past the deployment's hosts.
func prepare(t *testing.T, on *deployment.Deployment) {
	t.Helper()
	docs := documents()
	if err := on.Prepare(database); err != nil {
		t.Fatal(err)
	}
	err := on.SetCollection(database, things, nil, docs)
	for range 5 { // a write that was not acknowledged may make the collection meanwhile
		if err == nil {
			break
		}
		err = on.SetCollection(database, things, nil, docs)
	}
	if err != nil {
		t.Fatal(err)
	}
	options := d(`{"capped": true, "size": 4096}`)
	if err := on.SetCollection(database, capped, options, docs); err != nil {
		t.Logf("there is no capped collection: %v", err)
		if err := on.SetCollection(database, capped, nil, docs); err != nil {
			t.Fatal(err)
		}
	}
}

// seen counts the commands of each host that were looked at.
type seen map[*fakemongo.Host]int

// next returns the commands that the hosts have received since the last call, but for those of
// monitors and of connections that are being made.
func (s seen) next(on *deployment.Deployment) []command {
	out := []command{}
	for _, h := range on.Cluster().Hosts() {
		all := h.Commands()
		for _, c := range all[s[h]:] {
			if !slices.Contains([]string{"hello", "isMaster", "ismaster"}, c.Name) {
				out = append(out, describe(c))
			}
		}
		s[h] = len(all)
	}
	return out
}

// some returns the same as next, as soon as there is a command: that of a write which is not
// acknowledged may still be on its way. It waits for 2 seconds at most.
func (s seen) some(on *deployment.Deployment) []command {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		if commands := s.next(on); len(commands) > 0 {
			return commands
		}
		<-tick.C
	}
	return []command{}
}

// describe returns the fields of a command. The documents of a sequence have the paths that they
// have as an array; the field "(sequence)" tells which it was.
func describe(c fakemongo.Command) command {
	out := command{
		name: c.Name, fields: map[string]string{"(moreToCome)": fmt.Sprint(c.MoreToCome)},
	}
	if c.Legacy {
		out.fields["(message)"] = "OP_QUERY"
	}
	out.document("", c.Body)
	for name, docs := range c.Sequences {
		out.fields[name+" (sequence)"] = "yes"
		for i, doc := range docs {
			out.value(fmt.Sprintf("%s.%d", name, i), bson.DocumentValue(doc))
		}
	}
	return out
}

func (c command) document(prefix string, doc bson.Raw) {
	for key, v := range doc.All() {
		c.value(prefix+key, v)
	}
}

func (c command) value(path string, v bson.Value) {
	if inner, ok := v.Document(); ok && !inner.IsEmpty() {
		c.document(path+".", inner)
		return
	}
	if array, ok := v.Array(); ok && array.Len() > 0 {
		c.document(path+".", bson.Raw(array))
		return
	}
	c.fields[path] = print(path, v)
}

// changing are fields whose values differ each time; the types of the values are compared.
var changing = []string{
	"lsid.id", "txnNumber", "getMore", "cursors.0", "$clusterTime.clusterTime",
	"$clusterTime.signature.hash", "$clusterTime.signature.keyId", "readConcern.afterClusterTime",
}

// print returns a value as differences.md shows it: numbers with their type, all else as Extended
// JSON.
func print(path string, v bson.Value) string {
	_, isID := v.ObjectID()
	if slices.Contains(changing, path) || isID || strings.HasPrefix(path, "endSessions.") {
		return fmt.Sprintf("<%v>", v.Type)
	}
	if n, ok := v.Int64(); ok {
		return fmt.Sprintf("long %d", n)
	}
	if n, ok := v.Int32(); ok {
		return fmt.Sprintf("int %d", n)
	}
	text, err := extjson.AppendValue(nil, v, extjson.Canonical)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// newDeployment makes a replica set on the server that MOORING_TEST_URI names, or on the embedded
// database.
func newDeployment(t *testing.T) *deployment.Deployment {
	t.Helper()
	e := rawconn.NewEngine(suite.Address(t))
	t.Cleanup(e.Close)
	deployed := deployment.Listen(t, deployment.ReplicaSet, "7.0.0")
	deployed.UseEngine(e)
	return deployed
}

// newDeployment8 makes a replica set of version 8.0, whose servers have the command bulkWrite. No
// real server with that command is at hand, so its hosts carry the commands out themselves.
func newDeployment8(t *testing.T) *deployment.Deployment {
	t.Helper()
	return deployment.Listen(t, deployment.ReplicaSet, "8.0.0")
}
