package admission_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/mooringdb/mooring/service/admission"
)

func named(name string) admission.Principal { return admission.PrincipalOf(name, netip.Addr{}) }

func TestPrincipalOf(t *testing.T) {
	for _, test := range []struct{ name, address, other string }{
		{"an address", "192.0.2.1", "192.0.2.1"},
		{"the same as IPv6", "192.0.2.1", "::ffff:192.0.2.1"},
		{"one network", "2001:db8::1", "2001:db8::ffff:2"},
		{"a zone", "fe80::1%eth0", "fe80::2%eth1"},
	} {
		a := admission.PrincipalOf("", netip.MustParseAddr(test.address))
		b := admission.PrincipalOf("", netip.MustParseAddr(test.other))
		if a != b {
			t.Errorf("%s: %v and %v are two principals", test.name, a, b)
		}
	}
	a := admission.PrincipalOf("", netip.MustParseAddr("2001:db8::1"))
	b := admission.PrincipalOf("", netip.MustParseAddr("2001:db8:0:1::1"))
	if a == b {
		t.Errorf("two networks are one principal: %v", a)
	}
	if p := admission.PrincipalOf("key:a", netip.MustParseAddr("192.0.2.1")); p != named("key:a") {
		t.Errorf("a name at an address is %v", p)
	}
}

// TestTurns checks who is next: the turn goes round between principals, and within one the order
// is that of arrival.
func TestTurns(t *testing.T) {
	q := admission.NewQueue(admission.Limits{Total: 10})
	flood, other, third := named("flood"), named("other"), named("third")
	for range 8 {
		if v := q.Take(flood, 1, false); v != admission.Fits {
			t.Fatalf("Take(flood) = %v", v)
		}
	}
	var order []string
	wait := func(p admission.Principal, name string, last bool) {
		q.Wait(p, admission.NewDemand(1, last, func() { order = append(order, name) }))
	}
	if v := q.Take(flood, 1, false); v != admission.OwnShareVerdict {
		t.Fatalf("Take over the share = %v", v)
	}
	wait(flood, "flood 1", false)
	wait(flood, "flood 2", false)
	wait(flood, "flood 3", false)
	q.Take(other, 1, false)
	q.Take(third, 1, false) // now it is full
	if v := q.Take(other, 1, false); v != admission.FullVerdict {
		t.Fatalf("Take from a full queue = %v", v)
	}
	wait(other, "other 1", false)
	wait(other, "other 2", false)
	wait(third, "third 1", false)
	wait(flood, "flood, last", true)
	for range 7 {
		q.Give(flood, 1)
	}
	// The flood gets nothing but its last demand while it holds more than its share.
	want := []string{"flood, last", "other 1", "third 1", "other 2", "flood 1", "flood 2"}
	if !slices.Equal(order, want) {
		t.Errorf("granted %q, want %q", order, want)
	}
}

// TestAlternation checks that principals get one grant each, however much each of them wants.
func TestAlternation(t *testing.T) {
	q := admission.NewQueue(admission.Limits{Total: 100})
	before := named("before")
	q.Take(before, 100, true)
	var order []string
	for _, name := range []string{"a", "a", "a", "b", "b", "c"} {
		granted := func() { order = append(order, name) }
		q.Wait(named(name), admission.NewDemand(1, false, granted))
	}
	for range 6 {
		q.Give(before, 1)
	}
	if want := []string{"a", "b", "c", "a", "b", "a"}; !slices.Equal(order, want) {
		t.Errorf("granted %q, want %q", order, want)
	}
}

// TestOwnOrder checks that no demand overtakes an earlier one of its principal that is no larger
// than seven times its size.
func TestOwnOrder(t *testing.T) {
	q := admission.NewQueue(admission.Limits{Total: 100})
	p := named("p")
	q.Take(p, 50, false)
	granted := 0
	large := admission.NewDemand(60, false, func() { granted++ })
	q.Wait(p, large)
	if v := q.Take(p, 8, false); v != admission.OwnShareVerdict {
		t.Errorf("Take behind an earlier demand = %v", v)
	}
	small := admission.NewDemand(8, false, func() { granted++ })
	q.Wait(p, small)
	if v := q.Abandon(large); v != admission.OwnShareVerdict || granted != 1 {
		t.Errorf("Abandon = %v, then %d granted, want the one behind it", v, granted)
	}
}

// TestModel makes random histories and checks what holds after each step: the sums agree, no
// first demand of a principal fits and waits, each principal gets its demands in order but for
// small ones, and members that hold and want nothing are forgotten.
func TestModel(t *testing.T) {
	for seed := range uint64(300) {
		runModel(t, rand.New(rand.NewPCG(seed, 1)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// modelDemand is what the model knows of a demand that waits.
type modelDemand struct {
	demand *admission.Demand
	amount int64
	last   bool
}

type model struct {
	t       *testing.T
	limits  admission.Limits
	queue   *admission.Queue
	grants  map[admission.Principal][]int64
	waiting map[admission.Principal][]modelDemand
}

func runModel(t *testing.T, random *rand.Rand) {
	limits := admission.Limits{Total: random.Int64N(200)}
	if random.IntN(3) == 0 {
		limits.Each = 1 + random.Int64N(100)
	}
	m := &model{
		t: t, limits: limits, queue: admission.NewQueue(limits),
		grants:  map[admission.Principal][]int64{},
		waiting: map[admission.Principal][]modelDemand{},
	}
	names := []admission.Principal{named("a"), named("b"), named("c"), named("d")}
	for range 200 {
		p := names[random.IntN(len(names))]
		switch random.IntN(5) {
		case 0, 1, 2:
			m.ask(p, 1+random.Int64N(40), random.IntN(4) == 0)
		case 3:
			if held := m.grants[p]; len(held) > 0 {
				i := random.IntN(len(held))
				n := held[i]
				m.grants[p] = slices.Delete(held, i, i+1)
				m.queue.Give(p, n)
			}
		default:
			if waiting := m.waiting[p]; len(waiting) > 0 {
				d := waiting[random.IntN(len(waiting))]
				m.drop(p, d.demand)
				m.queue.Abandon(d.demand)
			}
		}
		m.check(names)
	}
	for p, waiting := range m.waiting {
		for _, d := range slices.Clone(waiting) {
			if slices.ContainsFunc(m.waiting[p], func(w modelDemand) bool { return w == d }) {
				m.drop(p, d.demand)
				m.queue.Abandon(d.demand)
			}
		}
	}
	for p, held := range m.grants {
		for _, n := range held {
			m.queue.Give(p, n)
		}
	}
	if m.queue.Used() != 0 || m.queue.Members() != 0 || m.queue.Waits() != 0 {
		t.Errorf("at the end %d are used by %d members, and %d wait", m.queue.Used(),
			m.queue.Members(), m.queue.Waits())
	}
}

func (m *model) drop(p admission.Principal, d *admission.Demand) {
	m.waiting[p] = slices.DeleteFunc(m.waiting[p], func(w modelDemand) bool {
		return w.demand == d
	})
}

func (m *model) ask(p admission.Principal, amount int64, last bool) {
	switch m.queue.Take(p, amount, last) {
	case admission.Fits:
		m.grants[p] = append(m.grants[p], amount)
		return
	case admission.TooMuchVerdict:
		return
	default:
	}
	var d *admission.Demand
	d = admission.NewDemand(amount, last, func() {
		for _, w := range m.waiting[p] {
			if w.last == last {
				if w.demand != d && w.amount < 8*amount {
					m.t.Errorf("%v got a demand before an earlier one", p)
				}
				break
			}
		}
		m.drop(p, d)
		m.grants[p] = append(m.grants[p], amount)
	})
	m.waiting[p] = append(m.waiting[p], modelDemand{d, amount, last})
	m.queue.Wait(p, d)
}

func (m *model) check(names []admission.Principal) {
	m.t.Helper()
	var used int64
	var waits int
	held := map[admission.Principal]int64{}
	for _, p := range names {
		for _, n := range m.grants[p] {
			held[p] += n
		}
		used += held[p]
		waits += len(m.waiting[p])
	}
	if m.queue.Used() != used || m.queue.Waits() != waits {
		m.t.Errorf("%d used and %d waiting, want %d and %d", m.queue.Used(), m.queue.Waits(),
			used, waits)
	}
	if m.limits.Total > 0 && used > m.limits.Total {
		m.t.Errorf("%d used of %d", used, m.limits.Total)
	}
	for _, p := range names {
		first := [2]bool{true, true}
		for _, d := range m.waiting[p] {
			c := 0
			if d.last {
				c = 1
			}
			if !first[c] {
				continue
			}
			first[c] = false
			v := admission.Judge(m.limits, used, held[p], d.amount, d.last)
			if v == admission.Fits {
				m.t.Errorf("a demand of %d of %v waits and fits: %d used, %d its own", d.amount,
					p, used, held[p])
			}
		}
	}
}

// TestSmallDemandsPass checks that a small demand does not wait for a large one of its principal,
// that it keeps its place among small ones, and that no large one waits for ever.
func TestSmallDemandsPass(t *testing.T) {
	q := admission.NewQueue(admission.Limits{Total: 1000})
	p := named("p")
	if v := q.Take(p, 600, false); v != admission.Fits {
		t.Fatalf("Take = %v", v)
	}
	var order []string
	wait := func(name string, amount int64) *admission.Demand {
		d := admission.NewDemand(amount, false, func() { order = append(order, name) })
		q.Wait(p, d)
		return d
	}
	wait("large", 240)
	for _, row := range []struct {
		amount int64
		want   admission.Verdict
	}{{31, admission.OwnShareVerdict}, {30, admission.Fits}} {
		if v := q.Take(p, row.amount, false); v != row.want {
			t.Errorf("%d after 240: %v, want %v", row.amount, v, row.want)
		}
	}
	q.Give(p, 30)
	passed := int64(30)
	for ; q.Take(p, 30, false) == admission.Fits; passed += 30 {
		q.Give(p, 30)
	}
	if passed != 8*240 {
		t.Errorf("%d bytes have passed 240, want %d", passed, 8*240)
	}
	wait("behind", 30)
	if len(order) > 0 {
		t.Errorf("%q is granted", order)
	}
	q.Give(p, 100)
	if want := []string{"large", "behind"}; !slices.Equal(order, want) {
		t.Errorf("granted %q, want %q", order, want)
	}
	q.Give(p, 100)
	order = nil
	wait("larger", 400)
	other := wait("another", 400)
	small := []*admission.Demand{wait("medium", 200), wait("small 1", 20), wait("small 2", 20)}
	q.Give(p, 1) // what fits is granted, in its order
	if want := []string{"small 1", "small 2"}; !slices.Equal(order, want) {
		t.Errorf("granted %q, want %q", order, want)
	}
	q.Abandon(other)
	q.Abandon(small[0])
	if n := q.Waits(); n != 1 {
		t.Errorf("%d demands wait, want 1", n)
	}
}
