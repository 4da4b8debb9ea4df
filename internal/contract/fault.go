package contract

import (
	"math/rand/v2"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// fault names what happens to a command of an operation, or to the call that it belongs to.
type fault uint8

const (
	pass          fault = iota
	dropBefore          // the connection to the server is closed, and nothing is done
	dropBetween         // it is done, and the connection is closed
	midReply            // it is done, and the connection is closed within the reply
	stepDown            // 10107: another server is primary
	shutdown            // 11600
	stateChange         // 11602
	overload            // 462
	concern             // it is done, and the write concern fails with 91
	tooMany             // 261
	slow                // it is done after a while
	late                // it is done, and answered after the gateway's deadline
	leave               // the caller leaves, and it is done
	leaveThenDrop       // the caller leaves, and the connection to the server is closed
	cutBefore           // the connection of the caller is closed, and it is done
	cutWithin           // it is done, and the caller's connection is closed within the answer
	faults
)

var faultNames = [faults]string{
	pass: "pass", dropBefore: "drop before", dropBetween: "drop between",
	midReply: "drop within the reply", stepDown: "10107", shutdown: "11600", stateChange: "11602",
	overload: "462", concern: "91", tooMany: "261", slow: "slow", late: "late", leave: "leave",
	leaveThenDrop: "leave, then drop", cutBefore: "cut", cutWithin: "cut within the answer",
}

func (f fault) String() string { return faultNames[f] }

// isUnanswered reports whether the gateway cannot know if the command was done.
func (f fault) isUnanswered() bool {
	return f == dropBefore || f == dropBetween || f == midReply || f == concern || f == late ||
		f == leaveThenDrop
}

// isOfCaller reports whether the client cannot know it, unless it asks again.
func (f fault) isOfCaller() bool {
	return f == leave || f == leaveThenDrop || f == cutBefore || f == cutWithin
}

// endsTransaction reports whether the server aborts a transaction with it, or may have.
func (f fault) endsTransaction() bool {
	return f.isUnanswered() || f == stepDown || f == shutdown || f == stateChange
}

// drawPlan returns what happens to the commands of an operation, one after the other. Bursts of one
// fault exhaust the driver's retries.
func drawPlan(op *operation, profile Profile, random *rand.Rand) []fault {
	var plan []fault
	for range random.IntN(4) {
		f := fault(random.IntN(int(faults)))
		if !f.fits(op.way) || !f.happensIn(profile) {
			continue
		}
		times := 1
		if f == overload && random.IntN(2) == 0 {
			times += random.IntN(8)
		}
		for range times {
			plan = append(plan, f)
		}
		if random.IntN(3) == 0 {
			plan = append(plan, pass)
		}
	}
	return plan
}

// happensIn reports whether a fault is one of a profile's.
func (f fault) happensIn(p Profile) bool {
	switch p {
	case Crowd: // nothing fails in a server
		return f == slow || f == leave || f == cutBefore || f == cutWithin
	case Late: // nothing else takes time, which may be the rest of a call's
		return f == late || f == overload || f == cutWithin
	case Alone, Storm:
	}
	return f != late
}

// fits reports whether a fault can happen to the commands of a way: reads and the statements of a
// transaction have no write concern, and only writes outside transactions have new sessions here.
func (f fault) fits(w Way) bool {
	switch f {
	case concern:
		return w != Page && w != Stream && w != Statement
	case tooMany:
		return w == Plain || w == Key
	default:
		return true
	}
}

// The commands that the plans of each way are about, and those of half of its operations. Others
// pass.
var (
	planned = [...][]string{
		Plain:     {"update", "insert"},
		Key:       {"update", "insert"},
		Statement: {"update"},
		Commit:    {"commitTransaction"},
		Run:       {"update", "commitTransaction"},
		Page:      {"find", "getMore"},
		Stream:    {"find", "getMore"},
		Import:    {"insert"},
	}
	later = [...][]string{
		Plain:     planned[Plain],
		Key:       planned[Key],
		Statement: planned[Statement],
		Commit:    planned[Commit],
		Run:       {"commitTransaction"},
		Page:      {"getMore"},
		Stream:    {"getMore"},
		Import:    planned[Import],
	}
)

// disturb answers a command as the plan of its operation says.
func (x *experiment) disturb(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
	op := x.operationOf(cmd)
	if op == nil {
		return next(cmd)
	}
	f := op.nextFault(cmd.Name)
	x.mu.Lock()
	x.report.Faults[f]++
	x.mu.Unlock()
	switch f {
	case dropBefore:
		return fakemongo.Drop()
	case dropBetween:
		next(cmd)
		return fakemongo.Drop()
	case midReply:
		doc := next(cmd).Document()
		return fakemongo.DropInside(doc, 20+op.number%len(doc))
	case stepDown:
		return refusal(cmd, 10107, "NotWritablePrimary")
	case shutdown:
		return refusal(cmd, 11600, "InterruptedAtShutdown")
	case stateChange:
		return refusal(cmd, 11602, "InterruptedDueToReplStateChange")
	case overload:
		return fakemongo.Error(462, "IngressRequestRateLimitExceeded", "too many requests",
			"SystemOverloadedError", "RetryableError")
	case concern:
		if cmd.Body.Has("autocommit") && cmd.Name != "commitTransaction" {
			return next(cmd) // a statement of Run
		}
		return withConcernError(next(cmd))
	case tooMany:
		return fakemongo.Error(261, "TooManyLogicalSessions", "cannot add session into the cache")
	case slow:
		return next(cmd).After(x.cfg.Wait)
	case late:
		return next(cmd).After(10 * x.cfg.Wait)
	case leave:
		op.leave()
		return next(cmd).After(x.cfg.Wait)
	case leaveThenDrop:
		op.leave()
		next(cmd)
		return fakemongo.Drop()
	case cutBefore:
		op.cut(0)
		return next(cmd).After(x.cfg.Wait)
	case cutWithin:
		op.cut(1 + op.number%100)
		return next(cmd)
	case pass, faults:
	}
	return next(cmd)
}

// operationOf returns the operation that a command belongs to, by its collection or by its
// transaction.
func (x *experiment) operationOf(cmd *fakemongo.Command) *operation {
	if cmd.Database != Database && cmd.Database != "admin" {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	lsid, _ := cmd.Body.Lookup("lsid", "id")
	number, _ := cmd.Body.Lookup("txnNumber")
	txn := ""
	if cmd.Body.Has("autocommit") {
		txn = string(lsid.Data) + "/" + string(number.Data)
	}
	name := cmd.Name
	if name == "getMore" {
		name = "collection"
	}
	value, _ := cmd.Body.Lookup(name)
	collection, _ := value.Str()
	op := x.open[collection]
	switch {
	case op != nil && txn != "":
		x.txns[txn] = op
	case op == nil && txn != "":
		op = x.txns[txn]
	}
	return op
}

// refusal refuses a command as a server does that changes its state: nothing was done.
func refusal(cmd *fakemongo.Command, code int32, name string) fakemongo.Reply {
	var labels []string
	ends := cmd.Name == "commitTransaction" || cmd.Name == "abortTransaction"
	switch within := cmd.Body.Has("autocommit"); {
	case within && !ends:
		labels = []string{"TransientTransactionError"}
	case cmd.Body.Has("txnNumber"):
		labels = []string{"RetryableWriteError"}
	}
	return fakemongo.Error(code, name, "the server changes its state", labels...)
}

// withConcernError returns a reply to a write that was done, and whose write concern has failed.
func withConcernError(r fakemongo.Reply) fakemongo.Reply {
	doc := r.Document()
	ok, _ := doc.Lookup("ok")
	if n, _ := ok.Double(); n != 1 {
		return r
	}
	return r.With(bson.NewBuilder(nil).OpenDocument("writeConcernError").Int32("code", 91).
		String("codeName", "ShutdownInProgress").String("errmsg", "shutting down").Close().
		OpenArray("errorLabels").String("", "RetryableWriteError").Close().Finish())
}
