package paging_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/paging"
)

// cutOff makes one replica unreachable for another one.
func (n *network) cutOff(from, to string) func(context.Context, string, string) error {
	return func(_ context.Context, f, t string) error {
		if f == from && t == to {
			return &paging.UnreachableError{Address: to, Err: errLine}
		}
		return nil
	}
}

// A push that is repeated, as its answer was lost, does not bring back what the receiver has
// granted meanwhile.
func TestSecondPushIsOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "d")
		page := n.open("a", 9, 2, 0)
		pushes := 0
		n.faults.before = n.cutOff("d", "a")
		n.faults.after = func(_ context.Context, from, to string) error {
			if from != "a" || to != "b" {
				return nil
			}
			if pushes++; pushes == 1 {
				page = n.mustNext("d", page.Token) //nolint:contextcheck // another client: b delivers it
				return errLine
			}
			return nil
		}
		n.stop("a")
		if pushes != 2 || numbers(page) != "2 3" {
			t.Fatalf("%d pushes, page %s", pushes, numbers(page))
		}
		if next := n.mustNext("b", page.Token); numbers(next) != "4 5" {
			t.Errorf("page %s", numbers(next))
		}
	})
}

// A replica that does not know whether its push has arrived grants none of the cursors any more,
// because the receiver may do so. The push arrives late, its answer is lost, or the time is up.
func TestUnsurePush(t *testing.T) {
	for _, test := range []struct {
		name    string
		arrives time.Duration // the push, at b
		answer  time.Duration // its answer, at a; 0: never
	}{
		{"the answers are lost", 0, 0},
		{"it arrives late", 30 * time.Second, 0},
		{"the answer is late", 0, 30 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, "a", "b", "c")
				page := n.open("a", 9, 2, 0)
				ended := n.open("a", 4, 2, 0)
				last := n.mustNext("a", ended.Token)
				n.faults.late = func(from, _ string) time.Duration {
					if from == "a" {
						return test.arrives
					}
					return 0
				}
				n.faults.after = func(_ context.Context, from, _ string) error {
					if from != "a" {
						return nil
					}
					time.Sleep(test.answer) //nolint:forbidigo // fake time
					if test.answer == 0 {
						return errLine
					}
					return nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				if err := n.node("a").Drain(ctx); err != nil {
					t.Fatal(err)
				}
				// no page is skipped by it
				if again := n.mustNext("c", ended.Token); !same(again, last) {
					t.Errorf("the last page of another one: %s", numbers(again))
				}
				next, err := n.next("c", page.Token)
				if test.arrives > 0 {
					if !errors.Is(err, paging.ErrCursorPositionUnknown) {
						t.Errorf("before it has arrived: %s, %v", numbers(next), err)
					}
					time.Sleep(time.Minute) //nolint:forbidigo // fake time
					next, err = n.next("c", page.Token)
				}
				if err != nil || numbers(next) != "2 3" {
					t.Errorf("page %s, %v", numbers(next), err)
				}
				if again := n.mustNext("b", page.Token); !same(again, next) {
					t.Errorf("the same token at b: %s", numbers(again))
				}
				if holds := len(n.node("a").Holds()) + len(n.node("c").Holds()); holds != 0 {
					t.Errorf("%d are held elsewhere", holds)
				}
				if next := n.mustNext("b", next.Token); numbers(next) != "4 5" {
					t.Errorf("then page %s", numbers(next))
				}
			})
		})
	}
}

// A question that waits while the cursor is pushed is not granted when it is unknown where that
// has gone.
func TestQuestionDuringAnUnsurePush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		page := n.open("a", 9, 2, 0)
		n.faults.after = func(_ context.Context, from, _ string) error {
			if from == "a" {
				time.Sleep(time.Second) //nolint:forbidigo // fake time
				return errLine
			}
			return nil
		}
		got := make(chan string)
		go func() {
			time.Sleep(time.Second / 2) //nolint:forbidigo // fake time
			next, err := n.next("c", page.Token)
			if err != nil {
				t.Error(err)
			}
			got <- numbers(next)
		}()
		if err := n.node("a").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if docs := <-got; docs != "2 3" {
			t.Errorf("page %s at c", docs)
		}
		if docs := numbers(n.mustNext("b", page.Token)); !strings.HasPrefix(docs, "2 3") {
			t.Errorf("page %s at b", docs)
		}
	})
}

// If a replica does not answer, the call ends with ErrCursorPositionUnknown, and not as if the
// client's own deadline had passed.
func TestReplicaThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		page := n.open("a", 9, 2, 0)
		n.crash("a")
		n.faults.before = func(ctx context.Context, _, to string) error {
			if to != "c" {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if _, err := n.next("b", page.Token); !errors.Is(err, paging.ErrCursorPositionUnknown) {
			t.Errorf("Next = %v, want %v", err, paging.ErrCursorPositionUnknown)
		}
	})
}
