package bank_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// overREST calls a gateway by REST.
type overREST struct{ base string }

// answer is what is read of responses.
type answer struct {
	result
	Transaction, Session, Cursor string
	Documents                    []struct{ Balance int }
	Results                      []map[string]json.RawMessage
	Error                        *struct{ Reason, Retry, Message string }
}

// post makes a call. fields are the members of the body, each of which begins with a comma.
func (r overREST) post(ctx context.Context, path, fields string) (answer, error) {
	return r.keyed(ctx, "", path, fields)
}

// keyed makes a call with an Idempotency-Key, if it has one.
func (r overREST) keyed(ctx context.Context, key, path, fields string) (answer, error) {
	body := "{" + strings.TrimPrefix(fields, ",") + "}"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+path,
		strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	var a answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return answer{}, fmt.Errorf("%s: %w", resp.Status, err)
	}
	if a.Error != nil {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return a, &failure{
			a.Error.Reason, a.Error.Retry, a.Error.Message, time.Duration(seconds) * time.Second,
		}
	}
	return a, nil
}

func token(name, value string) string {
	if value == "" {
		return ""
	}
	return fmt.Sprintf(`, %q: %q`, name, value)
}

// fields returns those of an operation that say to which transaction it belongs.
func (s statement) fields() string {
	fields := token("transaction", s.transaction)
	if s.number > 0 {
		fields += fmt.Sprintf(`, "statement": %d`, s.number)
	}
	return fields
}

func (r overREST) begin(ctx context.Context) (string, error) {
	a, err := r.post(ctx, "/v1/transactions:begin", `"readConcern": {"level": "snapshot"}`)
	return a.Transaction, err
}

func (r overREST) add(ctx context.Context, s statement, c change) (bool, error) {
	a, err := r.post(ctx, gatewaytest.Documents(database, accounts, "updateOne"),
		fmt.Sprintf(`"filter": %s, "update": %s`, c.filter(), c.update())+s.fields())
	return a.MatchedCount == 1, err
}

func (r overREST) record(ctx context.Context, s statement, f transfer) error {
	_, err := r.post(ctx, gatewaytest.Documents(database, f.ledger(), "insertOne"),
		`"document": `+f.document()+s.fields())
	return err
}

func (r overREST) commit(ctx context.Context, transaction string) error {
	_, err := r.post(ctx, "/v1/transactions:commit", token("transaction", transaction))
	return err
}

func (r overREST) abort(ctx context.Context, transaction string) error {
	_, err := r.post(ctx, "/v1/transactions:abort", token("transaction", transaction))
	return err
}

func (r overREST) run(ctx context.Context, f transfer) error {
	add := func(c change) string {
		return fmt.Sprintf(`{"updateOne": {"database": %q, "collection": %q, "filter": %s, `+
			`"update": %s}, "expect": {"matchedCount": 1}}`, database, accounts, c.filter(),
			c.update())
	}
	_, err := r.post(ctx, "/v1/transactions:run", fmt.Sprintf(`"operations": [`+
		`{"insertOne": {"database": %q, "collection": %q, "document": %s}}, %s, %s]`, database,
		f.ledger(), f.document(), add(change{f.from, -f.amount}), add(change{f.to, f.amount})))
	return err
}

func (r overREST) isRecorded(ctx context.Context, f transfer) (bool, error) {
	a, err := r.post(ctx, gatewaytest.Documents(database, f.ledger(), "find"),
		`"readConcern": {"level": "majority"}, "filter": `+f.filter())
	return len(a.Documents) > 0, err
}

func (r overREST) snapshot(ctx context.Context) (string, error) {
	a, err := r.post(ctx, "/v1/sessions:start", `"snapshot": true`)
	return a.Session, err
}

func (r overREST) find(
	ctx context.Context, s statement, session, filter string,
) (page, error) {
	return r.page(ctx, gatewaytest.Documents(database, accounts, "find"),
		`"filter": `+filter+token("session", session)+s.fields())
}

func (r overREST) next(ctx context.Context, s statement, before page) (page, error) {
	return r.page(ctx, "/v1/cursors:next",
		token("cursor", before.cursor)+token("session", before.session)+s.fields())
}

func (r overREST) page(ctx context.Context, path, fields string) (page, error) {
	a, err := r.post(ctx, path, fields)
	p := page{accounts: len(a.Documents), session: a.Session, cursor: a.Cursor}
	for _, account := range a.Documents {
		p.money += account.Balance
	}
	return p, err
}
