package admission

import (
	"net/netip"
	"slices"

	"github.com/mooringdb/mooring/service/clientaddr"
)

// Principal identifies a client for fairness: by its name, or by its address if it has no name.
type Principal struct {
	Name    string
	Address netip.Addr
}

// PrincipalOf returns the principal of a client. A client without a name is identified by its IPv4
// address, or by its IPv6 network (/64), since one client has many IPv6 addresses.
func PrincipalOf(name string, address netip.Addr) Principal {
	if name != "" {
		return Principal{Name: name}
	}
	return Principal{Address: clientaddr.Network(address)}
}

// queue holds what each principal has of one resource, and the demands that wait for more. It has
// no lock and no clock.
//
// Demands of one principal wait in the order of arrival, but a small one passes large ones that do
// not fit, for a while. Between principals the turn goes round:
// the next grant is for the principal whose last one is the longest ago, if its first demand
// fits. Demands that are the last of their calls come before all others. No demand waits that
// fits and is the first of its principal.
type queue struct {
	limits  Limits
	used    int64
	members map[Principal]*member
	// turns holds the members with waiting demands in the order of their turns: in turns[0] those
	// whose demands are the last of their calls.
	turns [2][]*member
	spare *member // one unused member, which saves an allocation for each call of a lone client
}

// member represents a principal that holds something or waits for something.
type member struct {
	principal Principal
	held      int64
	waiting   [2][]*demand // as in turns
}

// demand waits for an amount. The owner of the queue allocates it.
type demand struct {
	member *member
	amount int64
	last   bool
	// passed is what smaller demands have got that came later.
	passed int64
	// granted is called once, when the amount is the member's.
	granted func()
}

func newQueue(l Limits) *queue {
	return &queue{limits: l, members: map[Principal]*member{}}
}

func class(last bool) int {
	if last {
		return 0
	}
	return 1
}

// A demand passes one that waits if that is smallness times as large, until passing times as much
// as that asks for has passed it: the calls of a client that uploads much go on, and none of its
// uploads waits for ever. Who comes after more than mostPassed demands passes none, which bounds
// the work.
const (
	smallness  = 8
	passing    = 8
	mostPassed = 32
)

// passes reports whether an amount passes the demands before it.
func passes(before []*demand, amount int64) bool {
	if len(before) > mostPassed {
		return false
	}
	for _, d := range before {
		if amount > d.amount/smallness || d.passed+amount > passing*d.amount {
			return false
		}
	}
	return true
}

// pass records that an amount has passed the demands before it.
func pass(before []*demand, amount int64) {
	for _, d := range before {
		d.passed += amount
	}
}

// take takes an amount if it fits, and passes the earlier demands of the principal that wait.
func (q *queue) take(p Principal, amount int64, last bool) verdict {
	m := q.members[p]
	v := judge(q.limits, q.used, q.held(p), amount, last)
	if v == fits && m != nil && !passes(m.waiting[class(last)], amount) {
		v = ownShare
	}
	if v != fits {
		return v
	}
	if m == nil {
		m = q.join(p)
	}
	pass(m.waiting[class(last)], amount)
	m.held += amount
	q.used += amount
	return fits
}

// held returns what a principal holds.
func (q *queue) held(p Principal) int64 {
	if m := q.members[p]; m != nil {
		return m.held
	}
	return 0
}

// othersHelp reports whether an amount that take refuses would fit if others held less.
func (q *queue) othersHelp(p Principal, amount int64, last bool) bool {
	held := q.held(p)
	return !fit(q.limits, q.used, held, amount, last) && fit(q.limits, held, held, amount, last)
}

// force takes an amount that is in use already, whether or not it fits.
func (q *queue) force(p Principal, amount int64) {
	m := q.members[p]
	if m == nil {
		m = q.join(p)
	}
	m.held += amount
	q.used += amount
}

// wait adds a demand, which does not fit.
func (q *queue) wait(p Principal, d *demand) {
	m := q.members[p]
	if m == nil {
		m = q.join(p)
	}
	d.member = m
	c := class(d.last)
	if len(m.waiting[c]) == 0 {
		q.turns[c] = append(q.turns[c], m)
	}
	m.waiting[c] = append(m.waiting[c], d)
}

// abandon removes a demand that waits. It returns why the demand has not been granted.
func (q *queue) abandon(d *demand) verdict {
	m, c := d.member, class(d.last)
	v := judge(q.limits, q.used, m.held, d.amount, d.last)
	if v == fits {
		v = ownShare // it waits behind another demand of its principal
	}
	i := slices.Index(m.waiting[c], d)
	m.waiting[c] = slices.Delete(m.waiting[c], i, i+1)
	if len(m.waiting[c]) == 0 {
		i = slices.Index(q.turns[c], m)
		q.turns[c] = slices.Delete(q.turns[c], i, i+1)
	}
	q.leave(m)
	q.grant() // the demand behind it may fit
	return v
}

// give returns an amount, and grants what fits now.
func (q *queue) give(p Principal, amount int64) {
	m := q.members[p]
	if m == nil || m.held < amount {
		panic("bug: admission: more is returned than was taken")
	}
	m.held -= amount
	q.used -= amount
	q.leave(m)
	q.grant()
}

// grant grants waiting demands until none fits that is the first of its principal.
func (q *queue) grant() {
	for c := range q.turns {
		for i := 0; i < len(q.turns[c]) && !q.exhausted(); {
			m := q.turns[c][i]
			next := q.next(m, c)
			if next < 0 {
				i++
				continue
			}
			d := m.waiting[c][next]
			pass(m.waiting[c][:next], d.amount)
			m.waiting[c] = slices.Delete(m.waiting[c], next, next+1)
			q.turns[c] = slices.Delete(q.turns[c], i, i+1)
			if len(m.waiting[c]) > 0 {
				q.turns[c] = append(q.turns[c], m)
			}
			m.held += d.amount
			q.used += d.amount
			d.granted()
		}
	}
}

// next returns which demand of a member fits: the first one, or one that passes those before it. It
// returns -1 if there is none.
func (q *queue) next(m *member, c int) int {
	for i, d := range m.waiting[c] {
		switch {
		case i > mostPassed:
			return -1
		case judge(q.limits, q.used, m.held, d.amount, d.last) != fits:
		case passes(m.waiting[c][:i], d.amount):
			return i
		}
	}
	return -1
}

// exhausted reports whether nothing fits, so that no demand has to be judged.
func (q *queue) exhausted() bool { return q.limits.Total > 0 && q.used >= q.limits.Total }

func (q *queue) join(p Principal) *member {
	m := q.spare
	if m == nil {
		m = &member{}
	}
	q.spare = nil
	m.principal = p
	q.members[p] = m
	return m
}

// leave forgets a member that holds nothing and waits for nothing.
func (q *queue) leave(m *member) {
	if m.held == 0 && len(m.waiting[0]) == 0 && len(m.waiting[1]) == 0 {
		delete(q.members, m.principal)
		q.spare = m
	}
}

// waits returns the number of demands that wait.
func (q *queue) waits() (n int) {
	for c, turns := range q.turns {
		for _, m := range turns {
			n += len(m.waiting[c])
		}
	}
	return n
}
