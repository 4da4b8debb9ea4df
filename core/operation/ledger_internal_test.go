package operation

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/mooringdb/mooring/core/mongoerr"
)

// The attempts that the tests below are made of, with the number of a retryable write.
var (
	unsent       = entry{delivery: mongoerr.Unsent}
	refused      = entry{delivery: mongoerr.Refused, number: 7}
	wroteNothing = entry{delivery: mongoerr.Refused, number: 7, nothing: true}
	lost         = entry{delivery: mongoerr.Unanswered, number: 7}
	done         = entry{delivery: mongoerr.Executed, number: 7, decides: true}
	concerned    = entry{delivery: mongoerr.Executed, number: 7, decides: true, concern: true}
	replayed     = entry{
		delivery: mongoerr.Executed, number: 7, decides: true, concern: true, nothing: true,
	}
	cut = entry{delivery: mongoerr.Executed, number: 7}
)

// recordAll returns the ledger of the attempts, and which of them is kept, from 0.
func recordAll(l ledger, attempts []entry) (_ ledger, kept int) {
	for i, e := range attempts {
		var keep bool
		if l, keep = l.record(e); keep {
			kept = i
		}
	}
	return l, kept
}

func TestRecord(t *testing.T) {
	other := done
	other.number = 8
	plain, plainDone := lost, done
	plain.number, plainDone.number = 0, 0
	for name, tt := range map[string]struct {
		attempts []entry
		want     mongoerr.Delivery
		kept     int
	}{
		"nothing was sent":                     {[]entry{unsent, unsent}, mongoerr.Unsent, 0},
		"refused, then unsent":                 {[]entry{refused, unsent}, mongoerr.Refused, 0},
		"unsent, then refused":                 {[]entry{unsent, refused}, mongoerr.Refused, 1},
		"the last refusal":                     {[]entry{refused, refused}, mongoerr.Refused, 1},
		"the first, if the last wrote nothing": {[]entry{refused, wroteNothing}, mongoerr.Refused, 0},
		"a single one that wrote nothing":      {[]entry{wroteNothing}, mongoerr.Refused, 0},
		"lost, then refused":                   {[]entry{lost, refused}, mongoerr.Unanswered, 0},
		"lost, then nothing written":           {[]entry{lost, wroteNothing}, mongoerr.Unanswered, 0},
		"lost, then unsent":                    {[]entry{lost, unsent}, mongoerr.Unanswered, 0},
		"lost, then done":                      {[]entry{lost, refused, done}, mongoerr.Executed, 2},
		"lost, then lost":                      {[]entry{lost, lost}, mongoerr.Unanswered, 1},
		"refused, then lost":                   {[]entry{refused, lost}, mongoerr.Unanswered, 1},
		"done, then lost":                      {[]entry{concerned, lost}, mongoerr.Unanswered, 1},
		"lost, then cut":                       {[]entry{lost, cut}, mongoerr.Unanswered, 0},
		"lost, then done with another number":  {[]entry{lost, other}, mongoerr.Unanswered, 0},
		"lost without a number, then done":     {[]entry{plain, plainDone}, mongoerr.Unanswered, 0},
		"without its write concern":            {[]entry{concerned}, mongoerr.Executed, 0},
		"twice without it":                     {[]entry{concerned, concerned}, mongoerr.Executed, 1},
		"a replay without it":                  {[]entry{concerned, replayed}, mongoerr.Executed, 0},
		"lost, then a replay without it":       {[]entry{lost, replayed}, mongoerr.Executed, 1},
		"without it, then refused":             {[]entry{concerned, refused}, mongoerr.Unanswered, 0},
		"without it, then unsent":              {[]entry{concerned, unsent}, mongoerr.Unanswered, 0},
		"without it, then nothing written":     {[]entry{concerned, wroteNothing}, mongoerr.Executed, 0},
		"without it, refused, wroteNothing, and done": {
			[]entry{concerned, refused, wroteNothing, done}, mongoerr.Executed, 3,
		},
		"cut, then refused": {[]entry{cut, refused}, mongoerr.Executed, 0},
		"cut twice":         {[]entry{cut, cut}, mongoerr.Executed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l, kept := recordAll(ledger{}, tt.attempts)
			if l.delivery != tt.want || kept != tt.kept {
				t.Errorf("ledger of %+v = %+v, kept %d; want %v, %d", tt.attempts, l, kept, tt.want,
					tt.kept)
			}
		})
	}
}

// TestRecordReads checks that of an operation that changes nothing the last answer counts.
func TestRecordReads(t *testing.T) {
	for name, tt := range map[string]struct {
		attempts []entry
		want     mongoerr.Delivery
		kept     int
	}{
		"lost, then refused": {[]entry{lost, refused}, mongoerr.Refused, 1},
		"lost, then unsent":  {[]entry{lost, unsent}, mongoerr.Unanswered, 0},
		"cut, then lost":     {[]entry{cut, lost}, mongoerr.Unanswered, 1},
		"cut, then nothing":  {[]entry{cut, wroteNothing}, mongoerr.Executed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, kept := recordAll(ledger{reads: true}, tt.attempts)
			if l.delivery != tt.want || kept != tt.kept || l.isUnknown() {
				t.Errorf("ledger = %+v, kept %d; want %v, %d", l, kept, tt.want, tt.kept)
			}
		})
	}
}

// TestRecordOfCommit checks a commit after one whose outcome is unknown.
func TestRecordOfCommit(t *testing.T) {
	before := ledger{delivery: mongoerr.Unanswered, number: 7}
	for name, tt := range map[string]struct {
		attempts []entry
		unknown  bool
		kept     int
	}{
		"refused": {[]entry{refused, refused}, true, 0},
		"unsent":  {[]entry{unsent}, true, 0},
		"done":    {[]entry{refused, done}, false, 1},
	} {
		l, kept := recordAll(before, tt.attempts)
		if l.isUnknown() != tt.unknown || kept != tt.kept {
			t.Errorf("%s: %+v, kept %d; want unknown %v, %d", name, l, kept, tt.unknown, tt.kept)
		}
	}
}

// TestLedgerModel compares the ledger of random attempts with what the rules say of all of them at
// once.
func TestLedgerModel(t *testing.T) {
	all := []entry{unsent, refused, wroteNothing, lost, done, concerned, replayed, cut}
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 0))
		attempts := make([]entry, 1+random.IntN(7))
		numbered := random.IntN(4) > 0
		for i := range attempts {
			attempts[i] = all[random.IntN(len(all))]
			if !numbered {
				attempts[i].number = 0
			}
		}
		l, kept := recordAll(ledger{}, attempts)
		if l.isUnknown() != isUnknown(attempts) {
			t.Fatalf("seed %d: %+v is unknown: %v", seed, attempts, l.isUnknown())
		}
		if want := reach(attempts); !l.isUnknown() && l.delivery != want {
			t.Fatalf("seed %d: %+v comes to %v, want %v", seed, attempts, l.delivery, want)
		}
		if k := attempts[kept]; k.delivery != l.delivery && !(l.isUnknown() && k.concern) {
			t.Fatalf("seed %d: of %+v, which is %v, %+v is kept", seed, attempts, l.delivery, k)
		}
		if l.attempts != len(attempts) {
			t.Fatalf("seed %d: %d attempts, want %d", seed, l.attempts, len(attempts))
		}
	}
}

// isUnknown reports whether an attempt that may have been applied, or that was applied without its
// write concern and followed by one that does not tell, is not settled by a later one.
func isUnknown(attempts []entry) bool {
	for i, e := range attempts {
		doubt := e.delivery == mongoerr.Unanswered
		for _, later := range attempts[i+1:] {
			settles := later.decides && later.number == e.number && e.number != 0
			if settles && (doubt || e.concern) {
				doubt = false
				e.concern = false
				break
			}
			doubt = doubt || e.concern && !later.nothing
		}
		if doubt {
			return true
		}
	}
	return false
}

// reach returns how far attempts got whose outcome is known.
func reach(attempts []entry) mongoerr.Delivery {
	furthest := mongoerr.Unsent
	for i, e := range attempts {
		switch {
		case e.delivery == mongoerr.Executed:
			return mongoerr.Executed
		case e.delivery == mongoerr.Refused && (i == 0 || !e.nothing):
			furthest = mongoerr.Refused
		}
	}
	return furthest
}

// TestEntry checks how the end of an attempt is recorded.
func TestEntry(t *testing.T) {
	command := func(code int32, labels ...string) error {
		return &mongoerr.CommandError{Code: code, Labels: labels}
	}
	writes := func(codes ...int32) error {
		e := &mongoerr.WriteException{}
		for _, code := range codes {
			e.WriteErrors = append(e.WriteErrors, mongoerr.WriteError{Code: code})
		}
		return e
	}
	const (
		overloaded = mongoerr.LabelSystemOverloaded
		retryable  = mongoerr.LabelRetryable
		wrote      = mongoerr.LabelNoWritesPerformed
		transient  = mongoerr.LabelTransientTransaction
	)
	single := func(err error) ending { return ending{kind: Write, err: err} }
	several := func(err error) ending { return ending{kind: Write, divisible: true, err: err} }
	read := func(err error) ending { return ending{divisible: true, err: err} }
	again := func(err error) ending { return ending{err: err} } // a read that is repeated
	relayed := func(err error) ending { return ending{kind: Write, relayed: true, err: err} }
	abort := func(err error) ending { return ending{kind: Write, role: Abort, err: err} }
	commit := func(err error) ending { return ending{kind: Write, role: Commit, err: err} }
	concern := single(nil)
	concern.concern = &mongoerr.WriteConcernError{}
	member := several(command(11600))
	member.member = true
	within := again(command(6))
	within.member = true
	routed := again(command(10107))
	routed.relayed = true
	ofRouter := relayed(command(10107))
	ofRouter.member = true
	const (
		isUnsent   = mongoerr.Unsent
		isRefused  = mongoerr.Refused
		isUnknown  = mongoerr.Unanswered
		isExecuted = mongoerr.Executed
	)
	for name, tt := range map[string]struct {
		ending  ending
		want    mongoerr.Delivery
		decides bool
	}{
		"success":                       {single(nil), isExecuted, true},
		"without its write concern":     {concern, isExecuted, true},
		"an error that does not tell":   {single(io.EOF), isUnknown, false},
		"a broken connection":           {single(&mongoerr.NetworkError{}), isUnsent, false},
		"a duplicate key":               {single(command(11000)), isExecuted, true},
		"a document that is not valid":  {single(command(121)), isExecuted, true},
		"write errors":                  {single(writes(11000, 121)), isExecuted, true},
		"a write error of a step-down":  {single(writes(11000, 10107)), isExecuted, false},
		"a write error of a lost shard": {single(writes(6)), isExecuted, false},
		"a write error by killOp":       {single(writes(11601)), isExecuted, false},
		"a write error of maxTimeMS":    {single(writes(50)), isExecuted, false},
		"killOp":                        {single(command(11601)), isExecuted, false},
		"not authorized":                {single(command(13)), isExecuted, false},
		"no primary":                    {single(command(10107)), isRefused, false},
		"no primary, several":           {several(command(10107)), isRefused, false},
		"interrupted":                   {single(command(11600)), isRefused, false},
		"interrupted, several":          {several(command(11600)), isUnknown, false},
		"interrupted, nothing written":  {several(command(11602, wrote)), isRefused, false},
		"interrupted in a transaction":  {member, isRefused, false},
		"overloaded":                    {several(command(91, overloaded, retryable)), isRefused, false},
		"a read is interrupted":         {read(command(11600)), isRefused, false},
		"a lost shard":                  {single(command(6)), isUnknown, false},
		"a lost shard, nothing written": {single(command(6, wrote)), isRefused, false},
		"a write waits for a majority":  {single(command(134)), isExecuted, false},
		"a lost shard of a getMore":     {read(command(6)), isExecuted, false},
		"a lost shard of a read":        {again(command(6)), isRefused, false},
		"a read whose time was over":    {again(command(50)), isExecuted, false},
		"a read in a transaction":       {within, isExecuted, false},
		"relayed, no primary":           {relayed(command(10107)), isUnknown, false},
		"relayed, not master":           {relayed(command(10058)), isUnknown, false},
		"relayed, a step-down":          {relayed(command(189)), isUnknown, false},
		"relayed, a shutdown":           {relayed(command(91)), isUnknown, false},
		"relayed, interrupted":          {relayed(command(11600)), isUnknown, false},
		"relayed, nothing written":      {relayed(command(10107, wrote)), isRefused, false},
		"relayed, overloaded": {
			relayed(command(91, overloaded, retryable)), isRefused, false,
		},
		"relayed, a read":               {routed, isRefused, false},
		"relayed, in a transaction":     {ofRouter, isRefused, false},
		"a commit":                      {commit(nil), isExecuted, true},
		"a commit is interrupted":       {commit(command(11601)), isExecuted, false},
		"no such transaction":           {commit(command(251, transient)), isExecuted, true},
		"no such transaction, perhaps":  {commit(command(251)), isExecuted, false},
		"an abort of what is committed": {abort(command(256)), isExecuted, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := tt.ending
			a.sent, a.number = true, 7
			got := a.entry()
			if got.delivery != tt.want || got.decides != tt.decides || got.number != 7 {
				t.Errorf("entry() = %+v, want %v, decides %v", got, tt.want, tt.decides)
			}
			a.sent = false
			if got := a.entry(); got.delivery != mongoerr.Unsent || got.decides {
				t.Errorf("entry() of what was not sent = %+v", got)
			}
		})
	}
}

// TestTell checks the error that is derived from the ledger.
func TestTell(t *testing.T) {
	cutOff := &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.EOF}
	no := &mongoerr.CommandError{Code: 10107, Name: "NotWritablePrimary", Message: "secret"}
	for name, tt := range map[string]struct {
		ledger     ledger
		kept, last error
		want       string
	}{
		"success":   {ledger{delivery: mongoerr.Executed}, nil, nil, "<nil>"},
		"a refusal": {ledger{delivery: mongoerr.Refused}, no, no, no.Error()},
		"of a read": {
			ledger{reads: true, delivery: mongoerr.Unanswered}, cutOff, cutOff, cutOff.Error(),
		},
		"not sent": {ledger{delivery: mongoerr.Unsent}, context.Canceled, nil, "context canceled"},
		"one attempt": {
			ledger{delivery: mongoerr.Unanswered},
			cutOff, cutOff,
			"outcome of the write is unknown: " + cutOff.Error(),
		},
		"the caller has left": {
			ledger{delivery: mongoerr.Unanswered},
			cutOff, context.Canceled,
			"outcome of the write is unknown: " + cutOff.Error(),
		},
		"a later refusal": {
			ledger{delivery: mongoerr.Unanswered},
			cutOff, no,
			"outcome of the write is unknown: " + cutOff.Error() +
				"; a later attempt: " + mongoerr.Outline(no),
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.ledger.tell(tt.kept, tt.last)
			if text := errorText(err); text != tt.want {
				t.Errorf("tell() = %s, want %s", text, tt.want)
			}
			if err != nil && (mongoerr.Judge(err).Delivery != tt.ledger.delivery ||
				!errors.Is(err, tt.kept)) {
				t.Errorf("tell() = %v says %v", err, mongoerr.Judge(err).Delivery)
			}
			unknown, _ := errors.AsType[*OutcomeUnknownError](err)
			if (unknown != nil) != tt.ledger.isUnknown() {
				t.Errorf("tell() = %T", err)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return "<nil>"
	}
	return err.Error()
}
