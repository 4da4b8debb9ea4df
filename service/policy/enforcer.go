package policy

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/match"
)

// Enforcer applies a policy to the requests of calls. It is safe for concurrent use.
type Enforcer struct {
	script bool
	state  atomic.Pointer[state]

	mu        sync.Mutex
	followers []func()
}

// Config configures an Enforcer.
type Config struct {
	// Policy has the rules. Replace changes them.
	Policy *Policy
	// JavaScript allows $where, $function, $accumulator and the commands mapReduce, group and eval
	// to callers without limits on documents or fields.
	JavaScript bool
}

// NewEnforcer returns an Enforcer. cfg.Policy must not be nil.
func NewEnforcer(cfg Config) *Enforcer {
	e := &Enforcer{script: cfg.JavaScript}
	e.Replace(cfg.Policy)
	return e
}

// Replace replaces the rules. Requests that were checked before go on. Replace then calls the
// functions of Follow, which check what is open (Still), and returns when they have returned.
func (e *Enforcer) Replace(p *Policy) {
	e.state.Store(&state{
		policy: p, since: time.Now(),
		decisions: map[remembered]*Decision{}, standings: map[caller.Digest]standing{},
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.followers {
		f()
	}
}

// Since returns when the rules became what they are now.
func (e *Enforcer) Since() time.Time { return e.state.Load().since }

// Follow makes Replace call f each time, one call at a time. f must not call Replace or Follow.
func (e *Enforcer) Follow(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.followers = append(e.followers, f)
}

// IsOperator reports whether a client may see the servers of the deployment (GetTopology).
func (e *Enforcer) IsOperator(id *caller.Identity) bool {
	return e.state.Load().decide(question{id, "GetTopology", Resource{}}).Allowed
}

// state holds the rules, and the decisions that were made with them.
type state struct {
	policy *Policy
	since  time.Time

	mu        sync.RWMutex
	decisions map[remembered]*Decision
	bytes     int // of decisions, about
	standings map[caller.Digest]standing
}

// standing holds what rules say of a caller wherever it may be.
type standing struct {
	restricted  bool   // Policy.RestrictedSomewhere
	commandless string // Policy.Commandless
	world       Sum    // Policy.world
}

// question asks for one decision.
type question struct {
	who    *caller.Identity // nil: not authenticated
	action string
	on     Resource
}

// remembered stands for a question. It has the client by value: each call that another replica
// forwards has an identity of its own.
type remembered struct {
	who    caller.Digest
	action string
	on     Resource
}

// maxRemembered is how many decisions are remembered, and maxBytes how many bytes their names and
// filters have. The names of resources come from clients: if there are more, all are forgotten.
const (
	maxRemembered = 10_000
	maxBytes      = 4 << 20
)

// decide returns the decision about a question.
func (s *state) decide(q question) *Decision {
	key := remembered{q.who.Digest(), q.action, q.on}
	s.mu.RLock()
	d := s.decisions[key]
	s.mu.RUnlock()
	if d != nil {
		return d
	}
	who := principal(q.who)
	made := s.policy.Decide(&who, q.action, q.on)
	made.sum = sumOf(&made)
	if made.Filter != nil {
		made.match, _ = match.Compile(made.Filter) // without it, nothing matches
	}
	size := len(q.on.Database) + len(q.on.Collection) + 4*len(made.Filter) + len(made.Forced) +
		len(made.Rule)
	if size > maxBytes/100 {
		return &made
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.decisions) >= maxRemembered || s.bytes+size > maxBytes {
		clear(s.decisions)
		s.bytes = 0
	}
	// A name may be a part of a large request.
	key.on = Resource{strings.Clone(q.on.Database), strings.Clone(q.on.Collection)}
	s.decisions[key] = &made
	s.bytes += size
	return &made
}

// standing returns what rules say of a caller.
func (s *state) standing(id *caller.Identity) standing {
	key := id.Digest()
	s.mu.RLock()
	found, known := s.standings[key]
	s.mu.RUnlock()
	if known {
		return found
	}
	who := principal(id)
	found = standing{
		s.policy.RestrictedSomewhere(&who), s.policy.Commandless(&who), s.policy.world(&who),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.standings) >= maxRemembered {
		clear(s.standings)
	}
	s.standings[key] = found
	return found
}

// principal returns what rules see of an identity.
func principal(id *caller.Identity) Principal {
	if id == nil {
		return Principal{}
	}
	return Principal{Name: id.Principal, Groups: id.Groups, Claims: id.Claims}
}

// Refusal reports a request that the policy does not allow, or, if there is no policy, a request
// that only operators may make. Its text names no rule of the policy, so clients may see it.
type Refusal struct {
	// Principal, Action, On and Rule say who was refused what, and by which rules, as in Decision.
	Principal, Action string
	On                Resource
	Rule              string
	// Field is the path of the part of the request that is not allowed; empty: all of it.
	Field string
	// Problem says what that part does; its subject is "the request". It may be empty.
	Problem string
	// Changed means that the action is allowed within other limits than when the call began.
	Changed bool
	// NoPolicy means that there is no policy. Only operators may then request the action.
	NoPolicy bool
}

func (r *Refusal) Error() string {
	if r.NoPolicy {
		return "only operators may call " + r.Action + ": without a policy they are the " +
			"principals in auth.operators"
	}
	if r.Changed {
		return "the policy has changed what " + r.Action + " on " + r.On.String() +
			" may do: begin again"
	}
	text := "the policy does not allow " + r.Action + " on " + r.On.String()
	if r.Problem != "" {
		text += ": the request " + r.Problem
	}
	return text
}
