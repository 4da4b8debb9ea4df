// Package mischief disturbs a scripted deployment during an experiment: it drops connections,
// refuses commands as an overloaded server does, and holds elections. It does not judge what
// clients make of it.
package mischief

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
)

// Config says what to disturb.
type Config struct {
	Seed1, Seed2 uint64
	Commands     []string // by name
	// Drops and Overloads are the shares of these commands whose connection is dropped, and that
	// are refused with an error of overload.
	Drops, Overloads float64
}

// Disturber drops connections before a command, between a command and its reply, and after the
// reply, and refuses commands as an overloaded server does. All methods may be called at any time.
type Disturber struct {
	cfg Config

	// mu guards the fields below.
	mu      sync.Mutex
	random  *rand.Rand
	off     bool
	dropped Dropped
	refused int
}

// Dropped counts dropped connections.
type Dropped struct{ Before, Between, After int }

// New makes a disturber, which chooses at random, from the seeds.
func New(cfg Config) *Disturber {
	return &Disturber{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed1, cfg.Seed2))}
}

// Stop ends the mischief.
func (d *Disturber) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
}

// Counts returns what was done.
func (d *Disturber) Counts() (dropped Dropped, refused int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dropped, d.refused
}

// Disturb answers a command. It has the signature of deployment.Disturbance.
func (d *Disturber) Disturb(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
	if !slices.Contains(d.cfg.Commands, cmd.Name) {
		return next(cmd)
	}
	switch d.choose() {
	case dropBefore:
		return fakemongo.Drop()
	case dropBetween:
		next(cmd)
		return fakemongo.Drop()
	case dropAfter:
		return next(cmd).ThenDrop()
	case refuse:
		return fakemongo.Error(462, "IngressRequestRateLimitExceeded", "too many requests",
			"SystemOverloadedError", "RetryableError", "NoWritesPerformed")
	case pass:
	}
	return next(cmd)
}

// act names what to do with a command.
type act uint8

const (
	pass act = iota
	dropBefore
	dropBetween
	dropAfter
	refuse
)

func (d *Disturber) choose() act {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.random.Float64()
	switch {
	case d.off || p >= d.cfg.Drops+d.cfg.Overloads:
		return pass
	case p >= d.cfg.Drops:
		d.refused++
		return refuse
	}
	when := d.random.IntN(3)
	*[]*int{&d.dropped.Before, &d.dropped.Between, &d.dropped.After}[when]++
	return dropBefore + act(when)
}

// Elect has one host after the other be primary until ctx ends: each for a term, and none for the
// vacancy behind it. It blocks until then, leaves the deployment with a primary, and returns the
// number of elections.
func Elect(ctx context.Context, c *fakemongo.Cluster, term, vacancy time.Duration) (held int) {
	for sleep(ctx, term) {
		c.StepDown()
		more := sleep(ctx, vacancy)
		held++
		c.Elect(c.Host(held % len(c.Hosts())))
		if !more {
			break
		}
	}
	return held
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
