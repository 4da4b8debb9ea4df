package changestream_test

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The prose tests of the change streams specification, by their numbers. It has no 5, 10, 15 and
// 16 any more.

func TestChangeStreamProse1TracksTheResumeToken(t *testing.T) {
	run(t, 21, []step{
		aggregate(first(t, 1, "", tokenA, tokenB)),
		getMore(next(t, 1, tokenP)),
		getMore(next(t, 0, "", `{"_data":"c"}`)),
	}, func(t *testing.T, _ *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{})
		expectToken(t, s, "")
		expect(t, s, tokenA)
		expectToken(t, s, tokenA)
		expect(t, s, tokenB)
		expectToken(t, s, tokenB)
		if _, found, err := s.TryNext(t.Context()); found || err != nil {
			t.Errorf("TryNext() = %v, %v, want nothing", found, err)
		}
		expectToken(t, s, tokenP)
		expect(t, s, `{"_data":"c"}`)
		expectToken(t, s, `{"_data":"c"}`)
	})
}

func TestChangeStreamProse2MissingResumeToken(t *testing.T) {
	withoutID := fakemongo.CursorReply(1, "shop.orders", "firstBatch",
		doc(t, `{"operationType":"insert"}`))
	run(t, 7, []step{aggregate(withoutID)}, func(t *testing.T, srv *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{})
		for range 2 {
			if _, err := s.Next(t.Context()); !errors.Is(err, changestream.ErrNoResumeToken) {
				t.Errorf("Next() = %v, want ErrNoResumeToken", err)
			}
		}
		if got := srv.sent(); got != "aggregate killCursors" {
			t.Errorf("sent %s, want the cursor killed", got)
		}
	})
	run(t, 21, []step{
		aggregate(first(t, 1, "")), getMore(fakemongo.Error(280, "ChangeStreamFatalError", "no _id")),
	}, func(t *testing.T, _ *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{})
		for range 2 {
			if _, err := s.Next(t.Context()); mongoerr.Code(err) != 280 {
				t.Errorf("Next() = %v, want the server's error", err)
			}
		}
	})
}

func TestChangeStreamProse3ResumesOnceForAnError(t *testing.T) {
	for name, failure := range map[string]fakemongo.Reply{
		"label":                resumableError(),
		"not writable primary": fakemongo.Error(10107, "NotWritablePrimary", "no", "ResumableChangeStreamError"),
		"cursor not found":     fakemongo.Error(43, "CursorNotFound", "gone"),
		"network":              fakemongo.Drop(),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 21, []step{
				aggregate(first(t, 1, tokenP)),
				getMore(failure),
				aggregate(first(t, 2, tokenP, tokenA)),
			}, func(t *testing.T, srv *script, c *client.Client) {
				s := watch(t, c, client.WatchOptions{
					Common: client.Common{Comment: bson.StringValue("c")},
					Pipeline: bson.Array(bson.NewBuilder(nil).
						Document("0", doc(t, `{"$match":{"a":1}}`)).Finish()),
					FullDocument: "updateLookup", BatchSize: new(int32(5)),
					Collation: doc(t, `{"locale":"fr"}`),
				})
				expect(t, s, tokenA)
				var got []string
				for _, cmd := range srv.Commands("aggregate") {
					got = append(got, text(t, bson.Without(cmd.Body, "lsid")))
				}
				command := func(options string) string {
					return `{"aggregate":"orders","pipeline":[{"$changeStream":{` + options +
						`}},{"$match":{"a":1}}],` +
						`"cursor":{"batchSize":5},"comment":"c","collation":{"locale":"fr"},"$db":"shop"}`
				}
				want := []string{
					command(`"fullDocument":"updateLookup"`), command(`"fullDocument":"updateLookup","resumeAfter":{"_data":"p"}`),
				}
				if !slices.Equal(got, want) {
					t.Errorf("sent\n%q, want\n%q", got, want)
				}
				_ = s.Close(t.Context())
			})
		})
	}
}

func TestChangeStreamProse4AggregateErrorsAreNotResumed(t *testing.T) {
	run(t, 21, []step{aggregate(resumableError())}, func(
		t *testing.T, _ *script, c *client.Client,
	) {
		_, err := c.Watch(t.Context(), orders, client.WatchOptions{})
		if mongoerr.Code(err) != 280280 {
			t.Errorf("Watch() = %v, want the server's error", err)
		}
	})
	// …neither those of the aggregate that resumes.
	run(t, 21, []step{
		aggregate(first(t, 1, "")), getMore(fakemongo.Drop()), aggregate(resumableError()),
	}, func(t *testing.T, _ *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{})
		for range 2 {
			if _, err := s.Next(t.Context()); mongoerr.Code(err) != 280280 {
				t.Errorf("Next() = %v, want the error of the aggregate", err)
			}
		}
	})
}

func TestChangeStreamProse6SelectsAServerToResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary, fakemongo.Secondary)
		var mu sync.Mutex
		var asked []*fakemongo.Host
		for _, h := range cluster.Hosts() {
			h.Handle("aggregate", func(cmd *fakemongo.Command) fakemongo.Reply {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, h)
				if v, _ := cmd.Body.Lookup("$readPreference",
					"mode"); !v.Equal(bson.StringValue("secondary")) {
					t.Errorf("sent %s, want the read preference of the stream", text(t, cmd.Body))
				}
				if len(asked) == 2 {
					return first(t, 0, "", tokenA)
				}
				return first(t, 1, "")
			})
			h.Handle("getMore", func(*fakemongo.Command) fakemongo.Reply {
				go h.SetDown(true)
				return fakemongo.Hang()
			})
		}
		cfg, err := connstring.Parse(cluster.URI("replicaSet=rs"))
		if err != nil {
			t.Fatal(err)
		}
		s := watch(t, connect(t, cfg, cluster.Dial), client.WatchOptions{
			Common: client.Common{
				ReadPreference: &selection.ReadPreference{Mode: selection.Secondary},
			},
		})
		expect(t, s, tokenA)
		primary := cluster.Primary()
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != 2 || asked[0] == asked[1] || asked[0] == primary || asked[1] == primary {
			t.Errorf("the aggregates went to %v, want both secondaries", asked)
		}
	})
}

func TestChangeStreamProse7EmptyFirstBatchKeepsTheCursor(t *testing.T) {
	run(t, 21, []step{
		aggregate(first(t, 1, "")), getMore(next(t, 1, "")), getMore(next(t, 1, "", tokenA)),
	}, func(t *testing.T, srv *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{})
		expect(t, s, tokenA)
		if got := srv.sent(); got != "aggregate getMore getMore" {
			t.Errorf("sent %s", got)
		}
		_ = s.Close(t.Context())
	})
}

func TestChangeStreamProse8KillCursorsErrorsAreIgnored(t *testing.T) {
	for name, reply := range map[string]fakemongo.Reply{
		"refused": fakemongo.Error(1, "", "no"), "cut": fakemongo.Drop(), "hangs": fakemongo.Hang(),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 21, []step{
				aggregate(first(t, 1, "")), getMore(resumableError()), aggregate(first(t, 0, "", tokenA)),
			}, func(t *testing.T, srv *script, c *client.Client) {
				srv.Handle("killCursors", fakemongo.Always(reply))
				s := watch(t, c, client.WatchOptions{})
				expect(t, s, tokenA)
				if got := srv.sent(); got != "aggregate getMore killCursors aggregate" {
					t.Errorf("sent %s", got)
				}
			})
		})
	}
}

func TestChangeStreamProse9ResumesAtTheOperationTime(t *testing.T) {
	run(t, 7, []step{
		aggregate(first(t, 1, "")), getMore(fakemongo.Drop()), aggregate(first(t, 0, "", tokenA)),
	}, func(t *testing.T, srv *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{})
		expectToken(t, s, "")
		expect(t, s, tokenA)
		want := []string{`{}`, `{"startAtOperationTime":{"$timestamp":{"t":7,"i":8}}}`}
		if got := srv.options(); !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
	})
}

func TestChangeStreamProse11TokenOfTheBatch(t *testing.T) {
	run(t, 21, []step{
		aggregate(first(t, 1, tokenP)), getMore(next(t, 1, tokenB, tokenA)), getMore(next(t, 1, `{"_data":"q"}`)),
	}, func(t *testing.T, _ *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{})
		expectToken(t, s, tokenP) // empty batch
		expect(t, s, tokenA)
		expectToken(t, s, tokenB) // iterated to the last
		_, _, _ = s.TryNext(t.Context())
		expectToken(t, s, `{"_data":"q"}`)
		_ = s.Close(t.Context())
		expectToken(t, s, `{"_data":"q"}`)
	})
}

func TestChangeStreamProse12TokenWithoutOneOfTheBatch(t *testing.T) {
	run(t, 7, []step{aggregate(first(t, 1, "")), getMore(next(t, 1, "", tokenA))}, func(
		t *testing.T, _ *script, c *client.Client,
	) {
		s := watch(t, c, client.WatchOptions{ResumeAfter: doc(t, tokenB)})
		expectToken(t, s, tokenB)
		expect(t, s, tokenA)
		expectToken(t, s, tokenA)
		_ = s.Close(t.Context())
	})
}

func TestChangeStreamProse13TokenInsideABatch(t *testing.T) {
	run(t, 21, []step{aggregate(first(t, 1, tokenP, tokenA, tokenB))}, func(
		t *testing.T, _ *script, c *client.Client,
	) {
		s := watch(t, c, client.WatchOptions{})
		expect(t, s, tokenA)
		expectToken(t, s, tokenA)
		_ = s.Close(t.Context())
	})
}

func TestChangeStreamProse14TokenBeforeTheFirstEvent(t *testing.T) {
	for _, tt := range []struct {
		opt  client.WatchOptions
		want string
	}{
		{client.WatchOptions{}, ""},
		{client.WatchOptions{ResumeAfter: doc(t, tokenB)}, tokenB},
		{client.WatchOptions{StartAfter: doc(t, tokenB)}, tokenB},
	} {
		run(t, 21, []step{aggregate(first(t, 1, tokenP, tokenA))}, func(
			t *testing.T, _ *script, c *client.Client,
		) {
			s := watch(t, c, tt.opt)
			expectToken(t, s, tt.want)
			_ = s.Close(t.Context())
		})
	}
}

func TestChangeStreamProse17StartAfterUntilTheFirstEvent(t *testing.T) {
	run(t, 21, []step{
		aggregate(first(t, 1, "")), getMore(resumableError()), aggregate(first(t, 0, "", tokenA)),
	}, func(t *testing.T, srv *script, c *client.Client) {
		expect(t, watch(t, c, client.WatchOptions{StartAfter: doc(t, tokenB)}), tokenA)
		want := []string{`{"startAfter":{"_data":"b"}}`, `{"startAfter":{"_data":"b"}}`}
		if got := srv.options(); !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
	})
}

func TestChangeStreamProse18ResumeAfterOnceAnEventWasReturned(t *testing.T) {
	run(t, 21, []step{
		aggregate(first(t, 1, "", tokenA)), getMore(resumableError()), aggregate(first(t, 0, "", `{"_data":"c"}`)),
	}, func(t *testing.T, srv *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{StartAfter: doc(t, tokenB)})
		expect(t, s, tokenA)
		expect(t, s, `{"_data":"c"}`)
		want := []string{`{"startAfter":{"_data":"b"}}`, `{"resumeAfter":{"_data":"a"}}`}
		if got := srv.options(); !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
	})
}

// Fragments are events like others, in the order of the server.
func TestChangeStreamProse19SplitEvents(t *testing.T) {
	fragment := func(n int) bson.Raw {
		return doc(t,
			`{"_id":{"_data":"a","n":`+strconv.Itoa(n)+`},"splitEvent":{"fragment":`+
				strconv.Itoa(n)+`,"of":2}}`)
	}
	run(t, 21, []step{
		aggregate(first(t, 1, "")),
		getMore(fakemongo.CursorReply(1, "shop.orders", "nextBatch", fragment(1))),
		getMore(fakemongo.Drop()),
		aggregate(fakemongo.CursorReply(0, "shop.orders", "firstBatch", fragment(2))),
	}, func(t *testing.T, srv *script, c *client.Client) {
		s := watch(t, c, client.WatchOptions{
			Pipeline: bson.Array(bson.NewBuilder(nil).
				Document("0", doc(t, `{"$changeStreamSplitLargeEvent":{}}`)).Finish()),
		})
		for n := 1; n <= 2; n++ {
			event, err := s.Next(t.Context())
			if err != nil || text(t, event) != text(t, fragment(n)) {
				t.Fatalf("Next() = %s, %v, want fragment %d", text(t, event), err, n)
			}
		}
		want := []string{`{}`, `{"resumeAfter":{"_data":"a","n":1}}`}
		if got := srv.options(); !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
		for _, cmd := range srv.Commands("aggregate") {
			if !cmd.Body.Has("pipeline", "1", "$changeStreamSplitLargeEvent") {
				t.Errorf("sent %s", text(t, cmd.Body))
			}
		}
	})
}
