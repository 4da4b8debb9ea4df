package fakemongo

import (
	"maps"
	"sync"
)

// transactions holds the newest transaction of each session that a server knows. A mongos knows
// those that began on it. The members of a replica set know all of the set's. How a transaction
// goes on is up to the handlers.
type transactions struct {
	mu      sync.Mutex             // guards newest
	newest  map[string]transaction // by lsid
	unknown Reply                  // what answers commands of other transactions
}

type transaction struct {
	number int64
	ending bool // a commit has come
}

func newTransactions() *transactions {
	return &transactions{
		newest: map[string]transaction{},
		unknown: Error(251, "NoSuchTransaction", "the transaction is not in progress here",
			"TransientTransactionError"),
	}
}

// answer has next answer a command, unless it is one of a transaction that is not known. A commit
// with a recovery token is passed on: it asks what became of a transaction elsewhere.
func (t *transactions) answer(cmd *Command, next Handler) Reply {
	if !cmd.Body.Has("autocommit") {
		return next(cmd)
	}
	_, id, _ := field(cmd.Body, "lsid", "id").Binary()
	number, _ := field(cmd.Body, "txnNumber").AsInt64()
	starts, _ := field(cmd.Body, "startTransaction").Bool()
	commits := cmd.Name == "commitTransaction"
	t.mu.Lock()
	newest, begun := t.newest[string(id)]
	known := starts || begun && newest.number == number
	if known {
		ending := commits || !starts && newest.ending
		t.newest[string(id)] = transaction{number: number, ending: ending}
	}
	t.mu.Unlock()
	if !known && !(commits && cmd.Body.Has("recoveryToken")) {
		return t.unknown
	}
	return next(cmd)
}

// abort forgets the transactions that no commit has come for, as an election does.
func (t *transactions) abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.newest, func(_ string, tx transaction) bool { return !tx.ending })
}
