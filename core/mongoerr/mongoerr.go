// Package mongoerr holds the errors between the driver and a server: those of replies and those of
// the network. It answers the questions that callers ask of them: is it a timeout, does it have a
// label, how far did the command get? It reads replies and decides; it does no I/O, retries
// nothing and knows no status codes of other protocols.
package mongoerr

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
)

// The error labels that drivers act on.
const (
	LabelRetryableWrite                 = "RetryableWriteError"
	LabelTransientTransaction           = "TransientTransactionError"
	LabelUnknownTransactionCommitResult = "UnknownTransactionCommitResult"
	LabelResumableChangeStream          = "ResumableChangeStreamError"
	LabelNoWritesPerformed              = "NoWritesPerformed"
	LabelSystemOverloaded               = "SystemOverloadedError"
	LabelRetryable                      = "RetryableError"
)

// CommandError reports a reply with ok: 0.
type CommandError struct {
	Code            int32  // 0 where the server gave none
	Name            string // the server's codeName, or ours where the code is known
	Message         string
	Labels          []string
	Address         address.Address
	TopologyVersion bson.Raw // the reply's topologyVersion; nil where it has none
	Reply           bson.Raw
}

func (e *CommandError) Error() string {
	return "command failed on " + e.Address.String() + ": " + describe(e.Code, e.Name, e.Message)
}

// WriteError reports one entry of a reply's writeErrors: one statement of a write command that
// failed.
type WriteError struct {
	Index   int // the statement's place in the command
	Code    int32
	Message string
	Details bson.Raw // errInfo; nil where the server gave none
	Raw     bson.Raw
}

func (e WriteError) Error() string {
	return "write " + strconv.Itoa(e.Index) + ": " + describe(e.Code, codeNames[e.Code], e.Message)
}

// WriteConcernError reports a reply's writeConcernError: the write was applied, but not
// acknowledged as asked.
type WriteConcernError struct {
	Code            int32
	Name, Message   string
	Details         bson.Raw // errInfo; nil where the server gave none
	Labels          []string // the reply's labels
	Address         address.Address
	TopologyVersion bson.Raw // the reply's topologyVersion; nil where it has none
	Raw             bson.Raw
}

func (e *WriteConcernError) Error() string {
	return "write concern not satisfied on " + e.Address.String() + ": " +
		describe(e.Code, e.Name, e.Message)
}

// WriteException reports a reply with ok: 1 and writeErrors. WriteConcernError is nil where the
// reply has none.
type WriteException struct {
	WriteErrors       []WriteError
	WriteConcernError *WriteConcernError
	Labels            []string
	Address           address.Address
	Reply             bson.Raw
}

func (e *WriteException) Error() string {
	var b strings.Builder
	b.WriteString("write failed on " + e.Address.String())
	if len(e.WriteErrors) > 0 {
		b.WriteString(": " + e.WriteErrors[0].Error())
	}
	if n := len(e.WriteErrors) - 1; n > 0 {
		fmt.Fprintf(&b, " (and %d more)", n)
	}
	if e.WriteConcernError != nil {
		b.WriteString("; " + e.WriteConcernError.Error())
	}
	return b.String()
}

// Unwrap returns the write concern error.
func (e *WriteException) Unwrap() error {
	if e.WriteConcernError == nil {
		return nil
	}
	return e.WriteConcernError
}

// NetworkError reports a connection that could not be made, or that broke under a request or a
// reply.
type NetworkError struct {
	Address address.Address
	Op      string // what was being done: "dial", "hello", "write", "read", …
	Sent    bool   // the request was written, wholly or in part: the server may have acted on it
	Labels  []string
	Err     error
}

// Error returns a text that is the same for each attempt that fails for the same reason, since
// descriptions compare by the text of their error. So it leaves out the local port that
// net.OpError and net.DNSError have, and the time of day in the error about an expired
// certificate. What crypto/tls calls a remote error stays one: it is the server that objects.
func (e *NetworkError) Error() string {
	err := e.Err
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil && op.Op != "remote error" {
		err = op.Err
	}
	text := errorText(err)
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		text = strings.Replace(text, dns.Error(), dnsText(dns), 1)
	}
	cert, ok := errors.AsType[x509.CertificateInvalidError](err)
	if ok && cert.Reason == x509.Expired && cert.Cert != nil {
		text = strings.Replace(text, cert.Error(), expiredText(cert.Cert), 1)
	}
	return "network error on " + e.Address.String() + " (" + e.Op + "): " + text
}

// dnsText returns the text of a DNS error without its sockets and without the DNS server that was
// asked last.
func dnsText(e *net.DNSError) string {
	text := e.Err
	if i := strings.LastIndex(text, "->"); i >= 0 { // "read udp LOCAL->REMOTE: i/o timeout"
		if _, reason, ok := strings.Cut(text[i:], ": "); ok {
			text = reason
		}
	}
	return "lookup " + e.Name + ": " + text
}

func expiredText(cert *x509.Certificate) string {
	return fmt.Sprintf("x509: certificate has expired or is not yet valid: it is valid from %s "+
		"to %s",
		cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339))
}

func (e *NetworkError) Unwrap() error { return e.Err }

// Timeout reports whether a deadline ended the exchange, be it the connection's own or the
// context's.
func (e *NetworkError) Timeout() bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](e.Err)
	return ok && t.Timeout()
}

// OverloadError reports a connection that could not be made because of Err, a network error or a
// timeout before the end of the first hello. An overloaded server refuses connections that way, so
// the error carries the labels SystemOverloadedError and RetryableError beside those of Err (CMAP,
// "Pool Backpressure").
type OverloadError struct{ Err error }

func (e *OverloadError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *OverloadError) Unwrap() error { return e.Err }

// SelectionError reports a failed server selection: no server was suitable in time, or none can
// be.
type SelectionError struct {
	Selector string // what was looked for
	// Reason says, if time ran out, that no server suits, or which errors the servers have.
	Reason   string
	Topology string        // what was seen, with the servers' last errors
	Timeout  time.Duration // how long was waited, where Err is nil
	// Err is what ended the wait before: the context's cause, an incompatible server or an invalid
	// preference.
	Err error
}

func (e *SelectionError) Error() string {
	var b strings.Builder
	if e.Err != nil {
		b.WriteString("no server selected for " + e.Selector + ": " + e.Err.Error())
	} else {
		fmt.Fprintf(&b, "server selection timed out after %v: %s", e.Timeout, e.Reason)
	}
	if e.Topology != "" {
		b.WriteString("; topology: " + e.Topology)
	}
	return b.String()
}

func (e *SelectionError) Unwrap() error { return e.Err }

// MalformedReplyError reports a reply that is valid BSON and breaks the protocol.
type MalformedReplyError struct {
	Address address.Address
	Field   string
	Problem string
}

func (e *MalformedReplyError) Error() string {
	return "malformed reply from " + e.Address.String() + ": " + e.Field + " " + e.Problem
}

// Malformed returns true.
func (e *MalformedReplyError) Malformed() bool { return true }

// describe returns "message (Name, code 1)", without the parts that are not known.
func describe(code int32, name, message string) string {
	if message == "" {
		message = "no message"
	}
	switch {
	case code != 0 && name != "":
		return message + " (" + name + ", code " + strconv.Itoa(int(code)) + ")"
	case code != 0:
		return message + " (code " + strconv.Itoa(int(code)) + ")"
	case name != "":
		return message + " (" + name + ")"
	}
	return message
}

func errorText(err error) string {
	if err == nil {
		return "unknown"
	}
	return err.Error()
}
