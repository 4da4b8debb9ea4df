package client_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event/eventtrace"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// spans records the spans of a client by their names, indented by their depth, with "!" where they
// have failed.
type spans struct {
	all  []*recorded
	open int
}

type recorded struct {
	of         *spans
	depth      int
	name       string
	failed     bool
	attributes map[string]any
}

func (s *spans) start(
	_ context.Context, parent eventtrace.Span, name string, attributes []eventtrace.Attribute,
) eventtrace.Span {
	r := &recorded{of: s, name: name, attributes: map[string]any{}}
	if parent != nil {
		r.depth = parent.(*recorded).depth + 1
	}
	r.Set(attributes)
	s.all, s.open = append(s.all, r), s.open+1
	return r
}

func (r *recorded) Set(attributes []eventtrace.Attribute) {
	for _, a := range attributes {
		r.attributes[a.Key] = a.Value
	}
}

func (r *recorded) Fail(eventtrace.Exception) { r.failed = true }

func (r *recorded) End() { r.of.open-- }

func (s *spans) names() (all []string) {
	for _, r := range s.all {
		name := strings.Repeat(" ", r.depth) + r.name
		if r.failed {
			name += "!"
		}
		all = append(all, name)
	}
	return all
}

// traced runs a test with a client that is traced as the environment says.
func traced(
	t *testing.T, handlers fakemongo.Handlers, test func(t *testing.T, c *client.Client, s *spans),
) {
	t.Helper()
	var s spans
	var opt client.Options
	if enabled, length := eventtrace.FromEnvironment(os.Getenv); enabled {
		opt.Sink = eventtrace.Sink(eventtrace.Config{Start: s.start, MaxQueryTextLength: length})
	}
	runWith(t, handlers, connstring.Config{}, opt, func(
		t *testing.T, _ *fakemongo.Server, c *client.Client,
	) {
		test(t, c, &s)
	})
	if s.open != 0 {
		t.Errorf("%d spans have not ended", s.open)
	}
}

// TestOpenTelemetryProse1TracingEnableDisableViaEnvironmentVariable is "Tracing Enable/Disable via
// Environment Variable".
func TestOpenTelemetryProse1TracingEnableDisableViaEnvironmentVariable(t *testing.T) {
	for value, want := range map[string]bool{"false": false, "true": true} {
		t.Setenv(eventtrace.EnabledVariable, value)
		traced(t, nil, func(t *testing.T, c *client.Client, s *spans) {
			if _, _, err := c.FindOne(t.Context(), orders, client.FindOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := len(s.all) > 0; got != want {
				t.Errorf("%s: spans %q", value, s.names())
			}
		})
	}
}

// TestOpenTelemetryProse2CommandPayloadEmissionViaEnvironmentVariable is "Command Payload Emission
// via Environment Variable".
func TestOpenTelemetryProse2CommandPayloadEmissionViaEnvironmentVariable(t *testing.T) {
	t.Setenv(eventtrace.EnabledVariable, "true")
	for value, want := range map[string]bool{"1024": true, "0": false, "": false} {
		t.Setenv(eventtrace.MaxQueryTextLengthVariable, value)
		traced(t, nil, func(t *testing.T, c *client.Client, s *spans) {
			if _, _, err := c.FindOne(t.Context(), orders, client.FindOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, got := s.all[1].attributes["db.query.text"]; got != want {
				t.Errorf("%q: the command has the attributes %v", value, s.all[1].attributes)
			}
		})
	}
}

// TestOperationSpans checks the spans of operations: their names, and those of their commands.
func TestOperationSpans(t *testing.T) {
	t.Setenv(eventtrace.EnabledVariable, "true")
	model := client.WriteModel{Kind: client.InsertOne, Document: doc(t, `{}`)}
	for name, test := range map[string]struct {
		run     func(ctx context.Context, c *client.Client) error
		want    []string
		handler fakemongo.Handlers
	}{
		"find": {
			want: []string{"find shop.orders", " find", "getMore shop.orders", " getMore"},
			run: func(
				ctx context.Context, c *client.Client,
			) error {
				cur, err := c.Find(ctx, orders, client.FindOptions{})
				for err == nil && !cur.Done() {
					_, err = cur.Next(ctx)
				}
				return err
			}, handler: fakemongo.Handlers{
				"find": reply(t,
					`{"cursor":{"id":{"$numberLong":"5"},"ns":"shop.orders","firstBatch":[{}]},"ok":1}`),
				"getMore": reply(t,
					`{"cursor":{"id":0,"ns":"shop.orders","nextBatch":[{}]},"ok":1}`),
			},
		},
		"createCollection": {want: []string{"createCollection shop.orders", " create"}, run: func(
			ctx context.Context, c *client.Client,
		) error {
			return c.CreateCollection(ctx, orders, client.CreateCollectionOptions{})
		}, handler: fakemongo.Handlers{"create": reply(t, `{"ok":1}`)}},
		"dropCollection": {want: []string{"dropCollection shop.orders", " drop"}, run: func(
			ctx context.Context, c *client.Client,
		) error {
			return c.DropCollection(ctx, orders, client.ChangeOptions{})
		}, handler: fakemongo.Handlers{"drop": reply(t, `{"ok":1}`)}},
		"renameCollection": {
			want: []string{"renameCollection admin", " renameCollection"},
			run: func(
				ctx context.Context, c *client.Client,
			) error {
				return c.RenameCollection(ctx, orders, invoices, client.RenameCollectionOptions{})
			}, handler: fakemongo.Handlers{"renameCollection": reply(t, `{"ok":1}`)},
		},
		"listCollections": {want: []string{"listCollections shop", " listCollections"}, run: func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.ListCollections(ctx, "shop", client.ListCollectionsOptions{})
			return err
		}, handler: fakemongo.Handlers{
			"listCollections": reply(t,
				`{"cursor":{"id":0,"ns":"shop.$cmd","firstBatch":[]},"ok":1}`),
		}},
		"listIndexes": {want: []string{"listIndexes shop.orders", " listIndexes"}, run: func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.ListIndexes(ctx, orders, client.ListOptions{})
			return err
		}, handler: fakemongo.Handlers{
			"listIndexes": reply(t,
				`{"cursor":{"id":0,"ns":"shop.orders","firstBatch":[]},"ok":1}`),
		}},
		"insertMany in two commands": {
			want: []string{"insert shop.orders", " insert", " insert"},
			run: func(
				ctx context.Context, c *client.Client,
			) error {
				_, err := c.InsertMany(ctx, orders, []bson.Raw{model.Document, model.Document},
					client.InsertManyOptions{})
				return err
			}, handler: fakemongo.Handlers{
				"hello": helloWith(t, `{"maxWireVersion":21,"maxWriteBatchSize":1}`),
			},
		},
		"bulkWrite": {want: []string{"bulkWrite admin", " bulkWrite"}, run: func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.ClientBulkWrite(ctx,
				[]client.NamespacedWriteModel{{Namespace: orders, WriteModel: model}},
				client.NamespacedBulkWriteOptions{})
			return err
		}, handler: (&bulkServer{}).handlers(t)},
		"countDocuments": {want: []string{"countDocuments shop.orders", " aggregate"}, run: func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.CountDocuments(ctx, orders, client.CountDocumentsOptions{})
			return err
		}},
		"estimatedDocumentCount": {want: []string{"count shop.orders", " count"}, run: func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.EstimatedDocumentCount(ctx, orders, client.EstimatedDocumentCountOptions{})
			return err
		}, handler: fakemongo.Handlers{"count": reply(t, `{"n":1,"ok":1}`)}},
		"runCommand": {want: []string{"runCommand admin", " ping"}, run: func(
			ctx context.Context, c *client.Client,
		) error {
			_, err := c.RunCommand(ctx, "admin", doc(t, `{"ping":1}`), client.RunCommandOptions{})
			return err
		}},
		"a command that fails": {want: []string{"runCommand admin!", " none!"}, run: func(
			ctx context.Context, c *client.Client,
		) error {
			if _, err := c.RunCommand(ctx, "admin", doc(t, `{"none":1}`),
				client.RunCommandOptions{}); err == nil {
				return errors.New("the command has succeeded")
			}
			return nil
		}},
		"a write error": {want: []string{"insert shop.orders!", " insert"}, run: func(
			ctx context.Context, c *client.Client,
		) error {
			if _, err := c.InsertOne(ctx, orders, model.Document,
				client.InsertOneOptions{}); err == nil {
				return errors.New("the insert has succeeded")
			}
			return nil
		}, handler: fakemongo.Handlers{
			"insert": reply(t,
				`{"n":0,"writeErrors":[{"index":0,"code":11000,"errmsg":"dup"}],"ok":1}`),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			traced(t, test.handler, func(t *testing.T, c *client.Client, s *spans) {
				if err := test.run(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if got := s.names(); !slices.Equal(got, test.want) {
					t.Errorf("spans are %q, want %q", got, test.want)
				}
			})
		})
	}
}

// TestTransactionSpans checks that the operations of a transaction, and those alone, are under its
// span, which ends with the commit or the abort. A transaction without operations has none.
func TestTransactionSpans(t *testing.T) {
	t.Setenv(eventtrace.EnabledVariable, "true")
	hello := helloWith(t,
		`{"setName":"r","hosts":["fakemongo:27017"],"me":"fakemongo:27017","logicalSessionTimeoutMinutes":30,"maxWireVersion":21}`)
	ok := reply(t, `{"ok":1}`)
	handlers := fakemongo.Handlers{"hello": hello, "commitTransaction": ok, "abortTransaction": ok}
	insert := func(t *testing.T, c *client.Client, s *client.Session) {
		t.Helper()
		if _, err := c.InsertOne(t.Context(), orders, doc(t, `{}`),
			client.InsertOneOptions{Common: client.Common{Session: s}}); err != nil {
			t.Fatal(err)
		}
	}
	traced(t, handlers, func(t *testing.T, c *client.Client, s *spans) {
		tx, err := c.StartSession(session.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range []func(context.Context,
			client.EndTransactionOptions) error{tx.CommitTransaction, tx.AbortTransaction} {
			for _, operations := range []int{2, 0} {
				if err := tx.StartTransaction(client.TransactionOptions{}); err != nil {
					t.Fatal(err)
				}
				for range operations {
					insert(t, c, tx)
				}
				if err := end(t.Context(), client.EndTransactionOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		insert(t, c, tx)
		if err := tx.StartTransaction(client.TransactionOptions{}); err != nil {
			t.Fatal(err)
		}
		insert(t, c, tx)
		tx.End(t.Context())
		member := []string{" insert shop.orders", "  insert"}
		one := func(name string) []string {
			return slices.Concat([]string{"transaction"}, member, member,
				[]string{" " + name + " admin", "  " + name})
		}
		want := slices.Concat(one("commitTransaction"), one("abortTransaction"),
			[]string{"insert shop.orders", " insert", "transaction"}, member,
			[]string{" abortTransaction admin", "  abortTransaction"})
		if got := s.names(); !slices.Equal(got, want) {
			t.Errorf("spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
