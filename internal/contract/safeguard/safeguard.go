// Package safeguard knows the lines of the product that its promises stand on, and how to build the
// product without them, so that tests can show that they would notice. It changes no file of the
// repository: the changed source is laid over the packages (go build -overlay).
package safeguard

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Safeguard names one thing that the contract stands on, and how it is switched off: in a file of
// the product, from becomes to. Shows matches violations that tell that it is off, whatever else
// is: by the way of an operation, by what it was told, and by the numbers of the faults it has met.
type Safeguard struct {
	Name           string
	file, from, to string
	Shows          *regexp.Regexp
}

// All lists the safeguards.
var All = []Safeguard{
	{
		"the ledger keeps an attempt without an answer", "core/operation/ledger.go",
		"case l.delivery == mongoerr.Unanswered:\n\t\treturn e.decides && e.number != 0",
		"case l.delivery == mongoerr.Unanswered:\n\t\treturn true || e.number != 0",
		regexp.MustCompile(`, (plain|import): .*after \[(\{\d+ \w+\} )*\{[23] \w+\} \{[4-7] `),
	},
	{
		"the ledger keeps a write concern that failed", "core/operation/ledger.go",
		"case l.concern:\n\t\treturn e.decides && e.number != 0",
		"case l.concern:\n\t\treturn true || e.number != 0",
		regexp.MustCompile(`, (plain|import): .*after \[(\{\d+ \w+\} )*\{8 \w+\} \{[1-7] `),
	},
	{
		"a Run of unknown outcome is not repeated", "service/rpcerr/retry.go",
		"case e.commit && of.Transaction != nil:\n\t\treturn Never",
		"case e.commit && of.Transaction != nil:\n\t\treturn SameRequest",
		regexp.MustCompile(`, run: .*\{11 commitTransaction\}`),
	},
	{
		"the result of a statement is remembered", "service/transaction/statement.go",
		"case again:\n\t\treturn o.statements.result.get()",
		"case again && false:\n\t\treturn o.statements.result.get()",
		regexp.MustCompile(`applied twice: .*, statement: `),
	},
	{
		"a statement that was refused is forgotten", "service/transaction/statement.go",
		"if failure != nil && failure.Retry() == rpcerr.SameRequest {",
		"if failure != nil && failure.Retry() == \"\" {",
		regexp.MustCompile(`could have gone on: .*, (statement|commit): stuck`),
	},
	{
		"the session of a key comes from the key", "service/idempotency/idempotency.go",
		"newUUID(derive(root, 's', n))",
		"newUUID(derive(sha256.Sum256([]byte(time.Now().String())), 's', n))",
		regexp.MustCompile(`applied twice: .*, key: `),
	},
	{
		"the client repeats no plain write without an answer", "client/retry.go",
		"failed.isUnanswered() && repeatable ||",
		"failed.isUnanswered() && (repeatable || err != nil) ||",
		regexp.MustCompile(`, (plain|import): .*\{1[45] \w+\}`),
	},
	{
		"Commit can be repeated", "service/transaction/transactions.go",
		"case o == nil && ended.kind == outcomeCommitted:\n\t\treturn ended.unmet",
		"case o == nil && ended.kind == outcomeCommitted && ctx == nil:\n\t\treturn ended.unmet",
		regexp.MustCompile(`told wrongly: .*, (statement|commit): refused`),
	},
	{
		"a page can be asked for again", "service/page/ask.go",
		"delivered: {earlier: Reused, latest: Repeat,",
		"delivered: {earlier: Reused, latest: Reused,",
		regexp.MustCompile(`could have gone on: .*, page: `),
	},
	{
		"an import counts the documents of all batches", "service/document/import.go",
		"im.inserted += int64(len(res.InsertedIDs))",
		"im.inserted = int64(len(res.InsertedIDs))",
		regexp.MustCompile(`applied twice: .*, import: .*after \[(\{10 insert\} ?)*\]`),
	},
}

// Named returns the safeguard of a name.
func Named(name string) (Safeguard, error) {
	for _, s := range All {
		if s.Name == name {
			return s, nil
		}
	}
	return Safeguard{}, fmt.Errorf("no safeguard is called %q", name)
}

// Overlay writes an overlay for the go command into dir, which must exist, and returns the name of
// its file. What is built with it is the product below root without these safeguards.
func Overlay(root, dir string, off []Safeguard) (string, error) {
	changed, err := without(root, off)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range changed {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		original, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		replace[original] = file
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}

// without returns the files of safeguards, below root, without these.
func without(root string, off []Safeguard) (map[string]string, error) {
	files := map[string]string{}
	for _, s := range off {
		text, ok := files[s.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, s.file))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, s.from); n != 1 {
			return nil, fmt.Errorf("%s: %s is there %d times, want once:\n%s", s.Name, s.file, n,
				s.from)
		}
		files[s.file] = strings.Replace(text, s.from, s.to, 1)
	}
	return files, nil
}
