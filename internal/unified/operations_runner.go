package unified

import (
	"context"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
)

// settle lets everything happen that can happen without time passing.
func settle() { synctest.Wait() }

// runnerOperations returns the operations on the test runner. It is a function, since creating
// entities leads back to it.
func runnerOperations() table[*run] {
	return table[*run]{
		"failPoint":                            failPoint,
		"createEntities":                       createEntities,
		"waitForEvent":                         waitForEvent,
		"assertEventCount":                     assertEventCount,
		"wait":                                 wait,
		"loop":                                 loop,
		"runOnThread":                          runOnThread,
		"waitForThread":                        waitForThread,
		"assertNumberConnectionsCheckedOut":    assertCheckedOut,
		"recordTopologyDescription":            recordTopologyDescription,
		"assertTopologyType":                   assertTopologyType,
		"waitForPrimaryChange":                 waitForPrimaryChange,
		"targetedFailPoint":                    targetedFailPoint,
		"assertSessionTransactionState":        assertTransactionState,
		"assertSessionPinned":                  assertPinned(true),
		"assertSessionUnpinned":                assertPinned(false),
		"assertSessionDirty":                   assertSessionDirty(true),
		"assertSessionNotDirty":                assertSessionDirty(false),
		"assertSameLsidOnLastTwoCommands":      assertLsids(true),
		"assertDifferentLsidOnLastTwoCommands": assertLsids(false),
		"assertCollectionExists":               assertCollection(true),
		"assertCollectionNotExists":            assertCollection(false),
		"assertIndexExists":                    assertIndex(true),
		"assertIndexNotExists":                 assertIndex(false),
	}
}

// entityOf returns the entity that an argument names.
func entityOf[T any](r *run, a *arguments, name string) T {
	entity, err := get[T](r, a.text(name))
	if err != nil && a.err == nil {
		a.err = err
	}
	return entity
}

func failPoint(r *run, _ *run, a *arguments) action {
	c, command := entityOf[*observed](r, a, "client"), a.must("failPoint").document("failPoint")
	return func(ctx context.Context) outcome {
		_, err := c.RunCommand(ctx, "admin", command, client.RunCommandOptions{})
		return failed(err)
	}
}

func createEntities(r *run, _ *run, a *arguments) action {
	specs := a.must("entities").documents("entities")
	return func(ctx context.Context) outcome { return failed(r.create(ctx, specs)) }
}

func waitForEvent(r *run, _ *run, a *arguments) action {
	c, event, count := entityOf[*observed](r, a, "client"), a.must("event").document("event"),
		a.number("count")
	return func(ctx context.Context) outcome {
		seen := 0
		err := await(ctx, waitLimit, event.FirstKey(), func() (bool, <-chan struct{}) {
			n, changed := r.count(c, event)
			seen = n
			return n >= int(count), changed
		})
		if err != nil {
			err = fmt.Errorf("%w: there were %d, want %d", err, seen, count)
		}
		return failed(err)
	}
}

func assertEventCount(r *run, _ *run, a *arguments) action {
	c, event, count := entityOf[*observed](r, a, "client"), a.must("event").document("event"),
		a.number("count")
	return func(context.Context) outcome {
		settle()
		if n, _ := r.count(c, event); n != int(count) {
			return failed(fmt.Errorf("there were %d events %s, want %d", n, event.FirstKey(),
				count))
		}
		return outcome{}
	}
}

func wait(_ *run, _ *run, a *arguments) action {
	d := time.Duration(a.number("ms")) * time.Millisecond
	return func(context.Context) outcome {
		time.Sleep(d) //nolint:forbidigo // that is what the test asks for, and the time is fake
		return outcome{}
	}
}

func runOnThread(r *run, _ *run, a *arguments) action {
	t, op := entityOf[*thread](r, a, "thread"),
		newOperation(a.must("operation").document("operation"))
	return func(context.Context) outcome {
		t.todo <- op
		return outcome{}
	}
}

// waitForThread ends a thread, and waits for it.
func waitForThread(r *run, _ *run, a *arguments) action {
	t := entityOf[*thread](r, a, "thread")
	return func(ctx context.Context) outcome {
		t.end()
		err := await(ctx, waitLimit, "the thread", func() (bool, <-chan struct{}) {
			select {
			case <-t.done:
				return true, nil
			default:
				return false, t.done
			}
		})
		if err == nil {
			err = t.err
		}
		return failed(err)
	}
}

func assertCheckedOut(r *run, _ *run, a *arguments) action {
	c, want := entityOf[*observed](r, a, "client"), a.number("connections")
	return func(ctx context.Context) outcome {
		settle()
		n := 0
		err := await(ctx, waitLimit, "connections to be checked in",
			func() (bool, <-chan struct{}) {
				c.mu.Lock()
				defer c.mu.Unlock()
				n = c.checkedOut
				return n == int(want), c.changed
			})
		if err != nil {
			err = fmt.Errorf("%d connections are checked out, want %d: %w", n, want, err)
		}
		return failed(err)
	}
}

func recordTopologyDescription(r *run, _ *run, a *arguments) action {
	c, id := entityOf[*observed](r, a, "client"), a.must("id").text("id")
	return func(context.Context) outcome {
		return failed(r.entities.add(id, topologyDescription{c.Topology()}))
	}
}

func assertTopologyType(r *run, _ *run, a *arguments) action {
	d, want := entityOf[topologyDescription](r, a, "topologyDescription"), a.text("topologyType")
	return func(context.Context) outcome {
		if d.Kind.String() != want {
			return failed(fmt.Errorf("the topology is %v, want %s", d.Kind, want))
		}
		return outcome{}
	}
}

func waitForPrimaryChange(r *run, _ *run, a *arguments) action {
	c, before := entityOf[*observed](r, a, "client"),
		entityOf[topologyDescription](r, a, "priorTopologyDescription")
	limit := waitLimit
	if ms := a.int64("timeoutMS"); ms != nil {
		limit = time.Duration(*ms) * time.Millisecond
	}
	return func(ctx context.Context) outcome {
		return failed(await(ctx, limit, "another primary", func() (bool, <-chan struct{}) {
			now, changed := c.WatchTopology()
			primary := primaryOf(now)
			return primary != "" && primary != primaryOf(before.Topology), changed
		}))
	}
}

func primaryOf(t description.Topology) address.Address {
	for _, s := range t.Servers {
		if s.Kind == description.ServerRSPrimary {
			return s.Address
		}
	}
	return ""
}

func assertCollection(want bool) func(*run, *run, *arguments) action {
	return func(r *run, _ *run, a *arguments) action {
		database, name := a.text("databaseName"), a.text("collectionName")
		return func(context.Context) outcome {
			exists, err := r.deployment.HasCollection(database, name)
			if err == nil && exists != want {
				err = fmt.Errorf("%s.%s exists: %v", database, name, exists)
			}
			return failed(err)
		}
	}
}

func assertIndex(want bool) func(*run, *run, *arguments) action {
	return func(r *run, _ *run, a *arguments) action {
		a.must("databaseName", "collectionName", "indexName")
		database, name := a.text("databaseName"), a.text("collectionName")
		index := a.text("indexName")
		return func(context.Context) outcome {
			got, err := r.deployment.HasIndex(database, name, index)
			if err == nil && got != want {
				err = fmt.Errorf("%s.%s has the index %s: %v, want %v", database, name, index, got,
					want)
			}
			return failed(err)
		}
	}
}
