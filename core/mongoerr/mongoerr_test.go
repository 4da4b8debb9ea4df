package mongoerr_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
)

const addr = "a:27017"

func parse(t testing.TB, json string) bson.Raw {
	t.Helper()
	doc, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestFromReplyCommandError(t *testing.T) {
	err := mongoerr.FromReply(addr, parse(t, `{"ok": 0, "errmsg": "no such thing", "code": 26, "codeName": "NamespaceNotFound",
		"errorLabels": ["A", "B"], "topologyVersion": {"counter": 1}}`))
	e, ok := errors.AsType[*mongoerr.CommandError](err)
	if !ok {
		t.Fatalf("FromReply = %T %v, want a *CommandError", err, err)
	}
	if e.Code != 26 || e.Name != "NamespaceNotFound" || e.Message != "no such thing" ||
		e.Address != addr ||
		!slices.Equal(e.Labels, []string{"A", "B"}) || e.TopologyVersion.IsEmpty() {
		t.Errorf("FromReply = %+v", e)
	}
	want := "command failed on a:27017: no such thing (NamespaceNotFound, code 26)"
	if e.Error() != want {
		t.Errorf("Error() = %q, want %q", e, want)
	}
	if !mongoerr.HasLabel(fmt.Errorf("wrapped: %w", err), "B") || mongoerr.HasLabel(err, "C") {
		t.Error("HasLabel is wrong")
	}
}

func TestFromReplyWithoutError(t *testing.T) {
	for _, json := range []string{
		`{"ok": 1}`, `{"ok": 1.0, "n": 3}`, `{"ok": true}`, `{"ok": 1, "writeErrors": []}`, `{"ok": 1, "writeErrors": null}`,
		`{"ok": {"$numberLong": "1"}}`,
		`{"ok": 1, "writeConcernError": {"code": 64}}`, // not an error of the command
	} {
		if err := mongoerr.FromReply(addr, parse(t, json)); err != nil {
			t.Errorf("FromReply(%s) = %v", json, err)
		}
	}
}

// Only 1 is success.
func TestFromReplyOfOtherNumbers(t *testing.T) {
	for _, ok := range []string{
		`0`, `2`, `-1`, `{"$numberDouble": "NaN"}`, `0.5`, `{"$numberLong": "4294967297"}`, `false`, `{"$numberDecimal": "0"}`,
	} {
		err := mongoerr.FromReply(addr, parse(t, `{"ok": `+ok+`}`))
		if _, failed := errors.AsType[*mongoerr.CommandError](err); !failed {
			t.Errorf("FromReply of ok: %s = %v, want a *CommandError", ok, err)
		}
	}
}

func TestFromReplyWriteException(t *testing.T) {
	reply := parse(t, `{"ok": 1, "n": 1,
		"writeErrors": [{"index": 3, "code": 11000, "errmsg": "dup", "errInfo": {"a": 1}}, {"index": {"$numberLong": "5"}, "code": 121.0}],
		"writeConcernError": {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "late", "errInfo": {"wtimeout": true}},
		"errorLabels": ["RetryableWriteError"]}`)
	err := mongoerr.FromReply(addr, reply)
	e, ok := errors.AsType[*mongoerr.WriteException](err)
	if !ok {
		t.Fatalf("FromReply = %T %v, want a *WriteException", err, err)
	}
	first := e.WriteErrors[0]
	if len(e.WriteErrors) != 2 || first.Index != 3 || first.Code != 11000 ||
		first.Message != "dup" || first.Details.IsEmpty() ||
		e.WriteErrors[1].Index != 5 || e.WriteErrors[1].Code != 121 {
		t.Errorf("write errors = %+v", e.WriteErrors)
	}
	if wce := e.WriteConcernError; wce == nil || wce.Code != 64 ||
		wce.Name != "WriteConcernFailed" || wce.Details.IsEmpty() {
		t.Errorf("write concern error = %+v", wce)
	}
	want := "write failed on a:27017: write 3: dup (DuplicateKey, code 11000) (and 1 more); " +
		"write concern not satisfied on a:27017: late (WriteConcernFailed, code 64)"
	if e.Error() != want {
		t.Errorf("Error() = %q, want %q", e, want)
	}
	if got, ok := errors.AsType[*mongoerr.WriteConcernError](err); !ok ||
		got != e.WriteConcernError {
		t.Error("the write concern error is not in the chain")
	}
	if mongoerr.Code(err) != 64 || !mongoerr.HasLabel(err, mongoerr.LabelRetryableWrite) {
		t.Errorf("Code = %d", mongoerr.Code(err))
	}
}

func TestWriteConcernErrorOf(t *testing.T) {
	e := mongoerr.WriteConcernErrorOf(addr, parse(t,
		`{"ok": 1, "writeConcernError": {"code": 91, "errmsg": "bye"}, "topologyVersion": {"counter": 1}}`))
	if e == nil || e.Code != 91 || e.Name != "ShutdownInProgress" || e.TopologyVersion.IsEmpty() ||
		!mongoerr.IsShutdown(e) {
		t.Errorf("WriteConcernErrorOf = %+v", e)
	}
	for _, json := range []string{
		`{"ok": 1}`, `{"ok": 0, "writeConcernError": {"code": 91}}`, `{"ok": 1, "writeConcernError": 3}`, `{}`,
	} {
		if e := mongoerr.WriteConcernErrorOf(addr, parse(t, json)); e != nil {
			t.Errorf("WriteConcernErrorOf(%s) = %v", json, e)
		}
	}
}

func TestFromReplyMalformed(t *testing.T) {
	for json, field := range map[string]string{
		`{}`:                                                       "ok",
		`{"ok": "1"}`:                                              "ok",
		`{"ok": {}}`:                                               "ok",
		`{"ok": null}`:                                             "ok",
		`{"ok": 0, "code": "26"}`:                                  "code",
		`{"ok": 0, "code": 1e300}`:                                 "code",
		`{"ok": 0, "code": 1.5}`:                                   "code",
		`{"ok": 0, "errmsg": 1}`:                                   "errmsg",
		`{"ok": 0, "codeName": []}`:                                "codeName",
		`{"ok": 0, "errorLabels": "A"}`:                            "errorLabels",
		`{"ok": 0, "errorLabels": [1]}`:                            "errorLabels",
		`{"ok": 1, "writeErrors": {}}`:                             "writeErrors",
		`{"ok": 1, "writeErrors": [1]}`:                            "writeErrors",
		`{"ok": 1, "writeConcernError": 1}`:                        "writeConcernError",
		`{"ok": 1, "writeErrors": [{"index": -1}]}`:                "writeErrors",
		`{"ok": 1, "writeErrors": [{"index": "x"}]}`:               "writeErrors",
		`{"ok": 1, "writeErrors": [{"index": 0, "code": "x"}]}`:    "writeErrors",
		`{"ok": 1, "writeErrors": [{"index": 0, "errmsg": 1}]}`:    "writeErrors",
		`{"ok": 1, "writeErrors": [{"index": 0, "errInfo": "x"}]}`: "writeErrors",
	} {
		err := mongoerr.FromReply(addr, parse(t, json))
		if e, ok := errors.AsType[*mongoerr.MalformedReplyError](err); !ok || e.Field != field {
			t.Errorf("FromReply(%s) = %v, want a MalformedReplyError of %s", json, err, field)
		}
	}
	if err := mongoerr.FromReply(addr, bson.Raw{1, 2, 3}); err == nil {
		t.Error("FromReply of garbage succeeded")
	}
}

func command(code int32, message string) error {
	return &mongoerr.CommandError{Code: code, Message: message}
}

func TestPredicates(t *testing.T) {
	network := &mongoerr.NetworkError{Address: addr, Op: "read", Err: io.EOF}
	slow := &mongoerr.NetworkError{Address: addr, Op: "read", Err: os.ErrDeadlineExceeded}
	tests := []struct {
		name  string
		err   error
		holds string // the predicates that are true, in the order of the list below
	}{
		{"nil", nil, ""},
		{"InterruptedAtShutdown", command(11600, ""), "recovering state shutdown retryable"},
		{"InterruptedDueToReplStateChange", command(11602, ""), "recovering state retryable"},
		{"NotPrimaryOrSecondary", command(13436, ""), "recovering state retryable"},
		{"PrimarySteppedDown", command(189, ""), "recovering state retryable"},
		{"ShutdownInProgress", command(91, ""), "recovering state shutdown retryable"},
		{"NotWritablePrimary", command(10107, ""), "notPrimary state retryable"},
		{"NotPrimaryNoSecondaryOk", command(13435, ""), "notPrimary state retryable"},
		{"LegacyNotPrimary", command(10058, ""), "notPrimary state"},
		{"HostUnreachable", command(6, ""), "retryable"},
		{"MaxTimeMSExpired", command(50, ""), "timeout"},
		{"ExceededTimeLimit", command(262, ""), "timeout retryable"},
		{"duplicate key", command(11000, ""), ""},
		{"words, no code", command(0, "not master"), "notPrimary state"},
		{"other words, no code", command(0, "not master or secondary"), "recovering state"},
		{"more words, no code", command(0, "node is recovering"), "recovering state"},
		{"a code silences the words", command(1, "not master"), ""},
		{"wrapped", fmt.Errorf("find: %w", command(91, "")), "recovering state shutdown retryable"},
		{"write concern error", &mongoerr.WriteConcernError{Code: 91}, "recovering state shutdown retryable"},
		{"write errors do not count", &mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{{Code: 91}}}, ""},
		{"network", network, "network retryable"},
		{"network timeout", slow, "network timeout retryable"},
		{"cancelled", &mongoerr.NetworkError{Address: addr, Op: "read", Err: context.Canceled}, "network cancelled"},
		{"deadline", context.DeadlineExceeded, "timeout"},
		{"selection", &mongoerr.SelectionError{Err: context.DeadlineExceeded}, "timeout"},
		{"selection took too long", &mongoerr.SelectionError{}, ""},
	}
	predicates := []struct {
		name  string
		holds func(error) bool
	}{
		{"network", mongoerr.IsNetwork},
		{"notPrimary", mongoerr.IsNotWritablePrimary},
		{"recovering", mongoerr.IsRecovering},
		{"state", mongoerr.IsStateChange},
		{"shutdown", mongoerr.IsShutdown},
		{"timeout", mongoerr.IsTimeout},
		{"cancelled", mongoerr.IsCanceled},
		{"retryable", func(err error) bool { return mongoerr.Judge(err).Retryable }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, p := range predicates {
				if p.holds(tt.err) {
					got = append(got, p.name)
				}
			}
			if strings.Join(got, " ") != tt.holds {
				t.Errorf("%v: %v, want %s", tt.err, got, tt.holds)
			}
		})
	}
}

type retryable bool

func (retryable) Error() string     { return "?" }
func (r retryable) Retryable() bool { return bool(r) }

func TestJudgeAsksErrorsOfOtherPackages(t *testing.T) {
	if !mongoerr.Judge(fmt.Errorf("x: %w", retryable(true))).Retryable ||
		mongoerr.Judge(retryable(false)).Retryable {
		t.Error("Judge does not ask")
	}
}

// TestDelivery says how far a command got that ended with each of the errors.
func TestDelivery(t *testing.T) {
	sent := &mongoerr.NetworkError{Address: addr, Op: "read", Sent: true, Err: io.EOF}
	unsent := &mongoerr.NetworkError{Address: addr, Op: "dial", Err: io.EOF}
	cleared := &pool.PoolClearedError{Address: addr, Interrupted: true}
	tests := []struct {
		err  error
		want mongoerr.Delivery
	}{
		{nil, mongoerr.Undetermined},
		{io.EOF, mongoerr.Undetermined},
		{context.Canceled, mongoerr.Undetermined},
		{command(1, ""), mongoerr.Executed},
		{fmt.Errorf("find: %w", command(1, "")), mongoerr.Executed},
		{command(11000, ""), mongoerr.Executed},
		{command(11601, ""), mongoerr.Executed},
		{command(10107, ""), mongoerr.Refused},
		{command(11600, ""), mongoerr.Refused},
		{command(0, "not master"), mongoerr.Refused},
		{command(462, ""), mongoerr.Refused},
		{command(261, ""), mongoerr.Refused},
		{&mongoerr.CommandError{Labels: []string{mongoerr.LabelNoWritesPerformed}}, mongoerr.Refused},
		{&mongoerr.CommandError{Labels: []string{mongoerr.LabelSystemOverloaded}}, mongoerr.Executed},
		{
			&mongoerr.CommandError{Labels: []string{mongoerr.LabelSystemOverloaded, mongoerr.LabelRetryable}},
			mongoerr.Refused,
		},
		{&mongoerr.WriteException{}, mongoerr.Executed},
		{&mongoerr.WriteConcernError{}, mongoerr.Executed},
		{&mongoerr.MalformedReplyError{}, mongoerr.Unanswered},
		{&mongoerr.SelectionError{Err: context.DeadlineExceeded}, mongoerr.Unsent},
		{sent, mongoerr.Unanswered},
		{unsent, mongoerr.Unsent},
		{&mongoerr.OverloadError{Err: unsent}, mongoerr.Unsent},
		{&pool.ClosedError{}, mongoerr.Unsent},
		{&pool.WaitQueueTimeoutError{Err: context.DeadlineExceeded}, mongoerr.Unsent},
		{&pool.PoolClearedError{}, mongoerr.Unsent},
		{&mongoerr.NetworkError{Sent: true, Err: cleared}, mongoerr.Unanswered},
		{&pool.PinLimitError{}, mongoerr.Undetermined},
		{&operation.OutcomeUnknownError{Err: unsent}, mongoerr.Unanswered},
		{&operation.TimeoutError{Err: command(50, "")}, mongoerr.Executed},
		{&operation.TimeoutError{Err: io.EOF}, mongoerr.Unsent},
		{&operation.TimeoutError{Err: command(462, "")}, mongoerr.Refused},
		{&operation.TimeoutError{Err: &operation.OutcomeUnknownError{Err: io.EOF}}, mongoerr.Unanswered},
		{mongoerr.WithDelivery(context.Canceled, mongoerr.Unsent), mongoerr.Unsent},
		{mongoerr.WithDelivery(command(1, ""), mongoerr.Unanswered), mongoerr.Unanswered},
	}
	for _, tt := range tests {
		if got := mongoerr.Judge(tt.err).Delivery; got != tt.want {
			t.Errorf("Judge(%T %v).Delivery = %v, want %v", tt.err, tt.err, got, tt.want)
		}
	}
}

func TestWithDelivery(t *testing.T) {
	refused := command(10107, "")
	if got := mongoerr.WithDelivery(refused, mongoerr.Refused); got != refused { //nolint:errorlint // identity
		t.Errorf("WithDelivery(%v) = %v, want the same error", refused, got)
	}
	if got := mongoerr.WithDelivery(nil, mongoerr.Unsent); got != nil {
		t.Errorf("WithDelivery(nil) = %v, want nil", got)
	}
	got := mongoerr.WithDelivery(refused, mongoerr.Executed)
	if got.Error() != refused.Error() || !errors.Is(got, refused) {
		t.Errorf("WithDelivery(%v) = %v, want the text and the chain of the error", refused, got)
	}
}

func TestNetworkErrorTextHasNoSockets(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 43210}
	err := &mongoerr.NetworkError{
		Address: addr, Op: "read",
		Err: fmt.Errorf("reply: %w", &net.OpError{
			Op: "read", Net: "tcp", Source: local, Addr: local,
			Err: errors.New("connection reset by peer"),
		}),
	}
	if want := "network error on a:27017 (read): connection reset by peer"; err.Error() != want {
		t.Errorf("Error() = %q, want %q", err, want)
	}
}

// TestNetworkErrorTextLasts checks that attempts that fail for one reason have one text.
func TestNetworkErrorTextLasts(t *testing.T) {
	cert := &x509.Certificate{NotBefore: time.Unix(0, 0), NotAfter: time.Unix(3600, 0)}
	for name, test := range map[string]struct {
		attempt func(n int) error
		want    string
	}{
		"DNS times out": {func(n int) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
				Err:  fmt.Sprintf("read udp 10.0.0.5:4000%d->10.0.0.%d:53: i/o timeout", n, n),
				Name: "db.test", Server: fmt.Sprintf("10.0.0.%d:53", n), IsTimeout: true,
			}}
		}, "lookup db.test: i/o timeout"},
		"DNS is refused": {func(n int) error {
			return fmt.Errorf("try: %w", &net.DNSError{
				Err:  fmt.Sprintf("read udp [::1]:4000%d->[::1]:53: read: connection refused", n),
				Name: "db.test",
			})
		}, "try: lookup db.test: read: connection refused"},
		"no such host": {func(int) error {
			return &net.DNSError{
				Err: "no such host", Name: "db.test", Server: "10.0.0.1:53", IsNotFound: true,
			}
		}, "lookup db.test: no such host"},
		"an arrow": {func(int) error {
			return &net.DNSError{Err: "a->b", Name: "db.test"}
		}, "lookup db.test: a->b"},
		"an expired certificate": {
			func(n int) error {
				return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{
					Cert: cert, Reason: x509.Expired,
					Detail: fmt.Sprintf("current time 2026-01-0%d is after 1970", n),
				}}
			},
			"tls: failed to verify certificate: x509: certificate has expired or is not " +
				"yet valid: " +
				"it is valid from 1970-01-01T00:00:00Z to 1970-01-01T01:00:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := range 3 {
				err := &mongoerr.NetworkError{Address: addr, Op: "dial", Err: test.attempt(n)}
				if want := "network error on a:27017 (dial): " + test.want; err.Error() != want {
					t.Errorf("attempt %d: Error() = %q, want %q", n, err, want)
				}
			}
		})
	}
}

func TestNetworkErrorTextSaysWhoObjects(t *testing.T) {
	err := &mongoerr.NetworkError{
		Address: addr, Op: "hello",
		Err: &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")},
	}
	want := "network error on a:27017 (hello): remote error: tls: certificate required"
	if err.Error() != want {
		t.Errorf("Error() = %q, want %q", err, want)
	}
}

func TestTextsOfLittle(t *testing.T) {
	for want, err := range map[string]error{
		"network error on a:27017 (read): unknown":                &mongoerr.NetworkError{Address: addr, Op: "read"},
		"command failed on a:27017: no message":                   &mongoerr.CommandError{Address: addr},
		"command failed on a:27017: no (code 7)":                  &mongoerr.CommandError{Address: addr, Code: 7, Message: "no"},
		"command failed on a:27017: no (Odd)":                     &mongoerr.CommandError{Address: addr, Name: "Odd", Message: "no"},
		"command failed on a:27017: no (Odd, code 7)":             &mongoerr.CommandError{Address: addr, Code: 7, Name: "Odd", Message: "no"},
		"write 2: no (BadValue, code 2)":                          mongoerr.WriteError{Index: 2, Code: 2, Message: "no"},
		"write failed on a:27017":                                 &mongoerr.WriteException{Address: addr},
		"malformed reply from a:27017: ok is missing":             &mongoerr.MalformedReplyError{Address: addr, Field: "ok", Problem: "is missing"},
		"write concern not satisfied on a:27017: slow (code 640)": &mongoerr.WriteConcernError{Address: addr, Code: 640, Message: "slow"},
	} {
		if err.Error() != want {
			t.Errorf("Error() = %q, want %q", err, want)
		}
	}
}

func TestSelectionErrorText(t *testing.T) {
	err := &mongoerr.SelectionError{
		Selector: "writes", Reason: "No servers are suitable for writes", Topology: "Unknown []",
		Timeout: 30e9,
	}
	if want := "server selection timed out after 30s: No servers are suitable for writes; " +
		"topology: Unknown []"; err.Error() != want {
		t.Errorf("Error() = %q, want %q", err, want)
	}
	err.Err = io.EOF
	if want := "no server selected for writes: EOF; topology: Unknown []"; err.Error() != want {
		t.Errorf("Error() = %q, want %q", err, want)
	}
}

func FuzzFromReply(f *testing.F) {
	for _, json := range []string{
		`{"ok": 1}`, `{"ok": 0, "code": 91, "errmsg": "x", "errorLabels": ["a"], "topologyVersion": {}}`,
		`{"ok": 1, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "x", "errInfo": {}}], "writeConcernError": {"code": 64}}`,
	} {
		f.Add([]byte(parse(f, json)))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		err := mongoerr.FromReply(addr, reply)
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
		mongoerr.IsStateChange(err)
		if e := mongoerr.WriteConcernErrorOf(addr, reply); e != nil {
			_ = e.Error()
		}
	})
}

func BenchmarkFromReplyOK(b *testing.B) {
	reply := parse(b, `{"cursor": {"firstBatch": [{"a": 1}], "id": 0, "ns": "a.b"}, "ok": 1}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := mongoerr.FromReply(addr, reply); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWithLabel(t *testing.T) {
	refused := &mongoerr.CommandError{Code: 1, Labels: []string{"A"}}
	b := mongoerr.WithLabel(fmt.Errorf("commit: %w", refused), "B")
	if again := mongoerr.WithLabel(b, "B"); again != b { //nolint:errorlint // identity
		t.Errorf("WithLabel(%v) = %v, want the same error", b, again)
	}
	if again := mongoerr.WithLabel(refused, "A"); again != error(refused) { //nolint:errorlint // identity
		t.Errorf("WithLabel() = %v, want the server's error, which has the label", again)
	}
	if b.Error() != "commit: "+refused.Error() || !errors.Is(b, refused) {
		t.Errorf("WithLabel() = %v", b)
	}
	tests := []struct {
		err  error
		want []string
	}{
		{nil, nil},
		{io.EOF, nil},
		{b, []string{"B", "A"}},
		{mongoerr.WithLabel(b, "C"), []string{"C", "B", "A"}},
		{mongoerr.WithLabel(io.EOF, "C"), []string{"C"}},
		{
			mongoerr.WithLabel(&mongoerr.OverloadError{Err: &mongoerr.NetworkError{Err: io.EOF, Labels: []string{"D"}}}, "C"),
			[]string{"C", mongoerr.LabelSystemOverloaded, mongoerr.LabelRetryable, "D"},
		},
		{&mongoerr.OverloadError{Err: mongoerr.WithLabel(io.EOF, "C")}, []string{mongoerr.LabelSystemOverloaded, mongoerr.LabelRetryable, "C"}},
	}
	for _, tt := range tests {
		if got := mongoerr.Labels(tt.err); !slices.Equal(got, tt.want) {
			t.Errorf("Labels(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
	if len(refused.Labels) != 1 {
		t.Errorf("the server's labels are %v now", refused.Labels)
	}
}
