package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// safeguard names one thing that the contract stands on, and how it is switched off: in a file of
// the product, from becomes to.
type safeguard struct{ name, file, from, to string }

// safeguards are all of them.
var safeguards = []safeguard{
	{
		"the ledger keeps an attempt without an answer", "core/operation/ledger.go",
		"case l.delivery == mongoerr.Unanswered:\n\t\treturn e.decides && e.number != 0",
		"case l.delivery == mongoerr.Unanswered:\n\t\treturn true || e.number != 0",
	},
	{
		"the ledger keeps a write concern that failed", "core/operation/ledger.go",
		"case l.concern:\n\t\treturn e.decides && e.number != 0",
		"case l.concern:\n\t\treturn true || e.number != 0",
	},
	{
		"a Run of unknown outcome is not repeated", "service/rpcerr/retry.go",
		"case e.commit && of.Transaction != nil:\n\t\treturn Never",
		"case e.commit && of.Transaction != nil:\n\t\treturn SameRequest",
	},
	{
		"the result of a statement is remembered", "service/transaction/statement.go",
		"case again:\n\t\treturn o.statements.result.get()",
		"case again && false:\n\t\treturn o.statements.result.get()",
	},
	{
		"a statement that was refused is forgotten", "service/transaction/statement.go",
		"if failure != nil && failure.Retry() == rpcerr.SameRequest {",
		"if failure != nil && failure.Retry() == \"\" {",
	},
	{
		"the session of a key comes from the key", "service/idempotency/idempotency.go",
		"newUUID(derive(root, 's', n))",
		"newUUID(derive(sha256.Sum256([]byte(time.Now().String())), 's', n))",
	},
	{
		"the client repeats no plain write without an answer", "client/retry.go",
		"failed.isUnanswered() && repeatable ||",
		"failed.isUnanswered() && (repeatable || err != nil) ||",
	},
	{
		"Commit can be repeated", "service/transaction/transactions.go",
		"case o == nil && ended.kind == outcomeCommitted:\n\t\treturn nil",
		"case o == nil && ended.kind == outcomeCommitted && ctx == nil:\n\t\treturn nil",
	},
	{
		"a page can be asked for again", "service/page/ask.go",
		"delivered: {earlier: Reused, latest: Repeat,",
		"delivered: {earlier: Reused, latest: Reused,",
	},
	{
		"an import counts the documents of all batches", "service/document/import.go",
		"im.inserted += int64(len(res.InsertedIDs))",
		"im.inserted = int64(len(res.InsertedIDs))",
	},
}

// without returns the file of a safeguard, below root, without it.
func (s safeguard) without(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, s.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), s.from); n != 1 {
		return "", fmt.Errorf("%s: %s is there %d times, want once:\n%s", s.name, s.file, n, s.from)
	}
	return strings.Replace(string(text), s.from, s.to, 1), nil
}
