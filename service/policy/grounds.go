package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/caller"
)

// Grounds holds the decisions that allowed the requests of a call. What the call has opened (a
// stream, a cursor, a transaction) may go on as long as Still finds that the rules would decide
// each of them in the same way. The zero value holds none. Grounds is safe for concurrent use and
// must not be copied.
type Grounds struct {
	mu     sync.Mutex
	first  asked // most calls have one
	sum    Sum
	others map[asked]Sum
	bytes  int // of what is held
	// beyond is set if there is no room for a decision, or if the call has listed what the rules
	// allow it: to what the rules and the client were then, of which any change counts.
	beyond Sum
}

// room bounds what grounds hold.
type room struct{ decisions, bytes int }

var (
	// ofCall is what the grounds of a call hold. They go to other replicas in the header of a
	// forwarded call, whose size is bounded.
	ofCall = room{1000, 36 << 10}
	// ofTransaction is what the grounds of several calls hold.
	ofTransaction = room{2000, 2 << 20}
)

// twoWorlds is beyond what was decided by different rules, or for a client that has changed: none
// of these can come again for all of it.
var twoWorlds = Sum(bytes.Repeat([]byte{0xff}, len(Sum{})))

// asked says what a decision is about. The action commands is about the use of commands.
type asked struct {
	action string
	on     Resource
}

// commands stands for the use of commands, which rules about any collection can end.
const commands = "commands"

// Sum holds a hash of what a decision allows, without the ids of its rules.
type Sum [16]byte

// sumOf returns the sum of a decision.
func sumOf(d *Decision) (s Sum) {
	b := make([]byte, 0, 256)
	b = append(b, boolByte(d.Allowed), boolByte(d.narrow), boolByte(d.perEvent))
	for _, doc := range []bson.Raw{d.Filter, d.Forced} { // none is empty
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(doc))), doc...)
	}
	for _, list := range [][]string{d.Hidden, d.ReadOnly, d.Commands, d.Options} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
		for _, text := range list {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
		}
	}
	whole := sha256.Sum256(b)
	copy(s[:], whole[:])
	return s
}

func boolByte(yes bool) byte {
	if yes {
		return 1
	}
	return 0
}

// add adds a decision of a client. The rules of s have made it.
func (g *Grounds) add(s *state, who *caller.Identity, a asked, sum Sum) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.put(a, sum, ofCall) {
		g.exceed(s.standing(who).world)
	}
}

// addAll adds all that the rules of s say to a client, for what no list of decisions describes.
func (g *Grounds) addAll(s *state, who *caller.Identity) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.exceed(s.standing(who).world)
}

// put holds a decision, and reports whether there is room for it. Its caller has the lock.
func (g *Grounds) put(a asked, sum Sum, most room) bool {
	_, known := g.others[a]
	if known || g.first == a { // the first decision about it counts
		return true
	}
	size := len(sum) + 3 + len(a.action) + len(a.on.Database) + len(a.on.Collection)
	if len(g.others) >= most.decisions || g.bytes+size > most.bytes || a.on.isLong() {
		return false
	}
	g.bytes += size
	if g.first.action == "" {
		g.first, g.sum = a, sum
		return true
	}
	if g.others == nil {
		g.others = map[asked]Sum{}
	}
	// A name may be a part of a large request.
	a.on = Resource{strings.Clone(a.on.Database), strings.Clone(a.on.Collection)}
	g.others[a] = sum
	return true
}

// exceed records the world of a decision for which there is no room. Its caller has the lock.
func (g *Grounds) exceed(world Sum) {
	if g.beyond != (Sum{}) && g.beyond != world {
		world = twoWorlds
	}
	g.beyond = world
}

// world returns a sum of all rules and of what they see of a client. It leaves out other claims,
// and the order of groups and sets: a token that is renewed has another time and id, maybe another
// order.
func (p *Policy) world(who *Principal) (sum Sum) {
	used := map[string]any{}
	for name := range p.claims {
		if v, ok := who.Claims[name]; ok {
			used[name] = v
		}
	}
	groups := slices.Compact(slices.Sorted(slices.Values(who.Groups)))
	b := fmt.Appendf(nil, "%x%q%q%s", p.sum, who.Name, groups, cedarRecord(used).MarshalCedar())
	for _, r := range p.rules {
		for _, t := range []*template{r.filter, r.forced} {
			doc, ok := t.fill(who)
			b = append(append(b, boolByte(ok)), doc...)
		}
	}
	whole := sha256.Sum256(b)
	copy(sum[:], whole[:])
	return sum
}

// all returns the decisions, and what Grounds.beyond says.
func (g *Grounds) all() (made map[asked]Sum, beyond Sum) {
	g.mu.Lock()
	defer g.mu.Unlock()
	made = make(map[asked]Sum, 1+len(g.others))
	if g.first.action != "" {
		made[g.first] = g.sum
	}
	for a, sum := range g.others {
		made[a] = sum
	}
	return made, g.beyond
}

// Text encodes the grounds for Add, which may run at another replica. The encoding is binary.
func (g *Grounds) Text() string {
	made, beyond := g.all()
	b := append([]byte{}, beyond[:]...)
	for a, sum := range made {
		for _, text := range []string{a.action, a.on.Database, a.on.Collection} {
			b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
		}
		b = append(b, sum[:]...)
	}
	return string(b)
}

// decisionCost is what a decision of Grounds needs beside its texts and its sum.
const decisionCost = 100

// Size returns how many bytes are held, about.
func (g *Grounds) Size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bytes + decisionCost*len(g.others)
}

// Add adds grounds that Text has encoded. If there are then more than 2000 different decisions, or
// more than 2 MiB of them, the error is a *Refusal. Any other error says that text is malformed.
func (g *Grounds) Add(text string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if text == "" {
		return nil
	}
	r := decoder{rest: []byte(text)}
	beyond := r.sum()
	for len(r.rest) > 0 {
		a := asked{r.text(), Resource{r.text(), r.text()}}
		if sum := r.sum(); !r.bad && !g.put(a, sum, ofTransaction) {
			return &Refusal{
				Action: a.action, On: a.on, Rule: NoRule,
				Problem: "belongs to a transaction of more than 2000 kinds of operations",
			}
		}
	}
	if r.bad {
		return errGrounds
	}
	if beyond != (Sum{}) {
		g.exceed(beyond)
	}
	return nil
}

var errGrounds = errors.New("the grounds of a call are malformed")

// decoder takes values off the front of rest; bad says that there was too little, and stays.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.bad, d.rest = true, nil
		return nil
	}
	head := d.rest[:n]
	d.rest = d.rest[n:]
	return head
}

func (d *decoder) text() string {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.bad, d.rest = true, nil
		return ""
	}
	d.rest = d.rest[size:]
	return string(d.take(n))
}

func (d *decoder) sum() (s Sum) {
	copy(s[:], d.take(uint64(len(s))))
	return s
}

// Still returns nil if the rules as they are now allow a client all of g, within the same limits.
// Otherwise its error is a *Refusal. who is the client as it is now: its groups or claims may have
// changed.
func (e *Enforcer) Still(who *caller.Identity, g *Grounds) error {
	s := e.state.Load()
	made, beyond := g.all()
	for a, sum := range made {
		if refusal := s.changed(who, a, sum); refusal != nil {
			return refusal
		}
	}
	if beyond != (Sum{}) && beyond != s.standing(who).world {
		return &Refusal{
			Principal: principalName(who), Action: "the call", Rule: NoRule, Changed: true,
		}
	}
	return nil
}

// changed returns a Refusal if a decision would not be made again; nil: it would.
func (s *state) changed(who *caller.Identity, a asked, before Sum) *Refusal {
	r := &Refusal{Principal: principalName(who), Action: brief(a.action), On: a.on.brief()}
	if a.action == commands {
		if r.Rule = s.standing(who).commandless; r.Rule == "" {
			return nil
		}
		r.Action = "RunCommand"
		return r
	}
	d := s.decide(question{who, a.action, a.on})
	if r.Rule = d.Rule; d.sum == before {
		return nil
	}
	r.Changed = d.Allowed
	return r
}
