package check

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn/ocsp"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/selection"
)

// Report holds the result of a check. It contains no secret. A missing field means that nothing
// was found.
type Report struct {
	ConnectionString string `json:"connectionString"`
	// SRV is the name whose SRV records gave the hosts.
	SRV        string            `json:"srv,omitempty"`
	Hosts      []address.Address `json:"hosts"`
	Credential *Credential       `json:"credential,omitempty"`
	Options    []Option          `json:"options"`
	Warnings   []string          `json:"warnings"`
	// Clients says where clients connect and what they need, one sentence each. Run leaves it
	// empty, since it knows the connection to MongoDB only.
	Clients    []string    `json:"clients,omitempty"`
	Servers    []Server    `json:"servers"` // the hosts, then those that they named
	Deployment *Deployment `json:"deployment,omitempty"`
	// Error says why the deployment cannot be used, in one line.
	Error string `json:"error,omitempty"`
}

// Credential holds what the connection string says about authentication, without secrets.
type Credential struct {
	HasPassword bool   `json:"hasPassword"`
	Mechanism   string `json:"mechanism,omitempty"` // empty: to be negotiated
	Database    string `json:"database,omitempty"`
}

// Option holds one option that is set.
type Option struct {
	Name    string `json:"name"`
	Value   string `json:"value"`             // "***" for a secret
	FromDNS bool   `json:"fromDNS,omitempty"` // a TXT record has it
}

// Server holds the result for one host.
type Server struct {
	Address address.Address `json:"address"`
	// Discovered says that other hosts named it, not the string.
	Discovered  bool         `json:"discovered,omitempty"`
	Error       string       `json:"error,omitempty"`     // why there is no more than this
	ConnectMS   float64      `json:"connectMS,omitempty"` // the whole time to connect
	RoundTripMS float64      `json:"roundTripMS,omitempty"`
	Hello       *Hello       `json:"hello,omitempty"`
	TLS         *TLS         `json:"tls,omitempty"` // nil: not encrypted
	Compression *Compression `json:"compression,omitempty"`
	// Login is nil if there is no credential, or the server has no users.
	Login *Login `json:"login,omitempty"`
}

// Hello holds what a server says about itself.
type Hello struct {
	Kind                string          `json:"kind"`
	SetName             string          `json:"setName,omitempty"`
	Me                  address.Address `json:"me,omitempty"` // its name in the set
	Tags                string          `json:"tags,omitempty"`
	MinWireVersion      int32           `json:"minWireVersion"`
	MaxWireVersion      int32           `json:"maxWireVersion"`
	MaxBSONObjectSize   int32           `json:"maxBsonObjectSize"`
	MaxMessageSizeBytes int32           `json:"maxMessageSizeBytes"`
	MaxWriteBatchSize   int32           `json:"maxWriteBatchSize"`
	// LogicalSessionTimeoutMinutes is nil if there are no sessions.
	LogicalSessionTimeoutMinutes *int64 `json:"logicalSessionTimeoutMinutes,omitempty"`
}

// TLS holds the negotiated parameters.
type TLS struct {
	Version  string    `json:"version"`
	Cipher   string    `json:"cipher"`
	Subject  string    `json:"subject"`
	Names    []string  `json:"names,omitempty"`
	Issuer   string    `json:"issuer"`
	NotAfter time.Time `json:"notAfter"`
	Skipped  string    `json:"skipped,omitempty"` // what the options exclude from verification
	OCSP     string    `json:"ocsp"`
}

// Compression holds the negotiated compressor.
type Compression struct {
	Compressor string   `json:"compressor,omitempty"` // empty: none
	Offered    []string `json:"offered,omitempty"`
}

// Deployment holds the deployment as server selection sees it.
type Deployment struct {
	Kind           string            `json:"kind"`
	SetName        string            `json:"setName,omitempty"`
	Writable       []address.Address `json:"writable"`
	ReadPreference string            `json:"readPreference"`
	Readable       []address.Address `json:"readable"`
	// TooFar has the servers that are readable, except for their distance.
	TooFar                       []address.Address `json:"tooFar,omitempty"`
	LogicalSessionTimeoutMinutes *int64            `json:"logicalSessionTimeoutMinutes,omitempty"`
	LeftOut                      []LeftOut         `json:"leftOut,omitempty"`
	// Problem is the error of every operation.
	Problem string `json:"problem,omitempty"`

	selectable bool // some server accepts some operation
}

// LeftOut names a host that answers and is not used.
type LeftOut struct {
	Address address.Address `json:"address"`
	Reason  string          `json:"reason"`
}

func hello(d *description.Server) *Hello {
	h := &Hello{
		Kind: d.Kind.String(), SetName: oneLine(d.SetName),
		Me:             address.Address(oneLine(string(d.Me))),
		MinWireVersion: d.MinWireVersion, MaxWireVersion: d.MaxWireVersion,
		MaxBSONObjectSize: d.MaxBSONObjectSize, MaxMessageSizeBytes: d.MaxMessageSize,
		MaxWriteBatchSize:            d.MaxWriteBatchSize,
		LogicalSessionTimeoutMinutes: d.LogicalSessionTimeoutMinutes,
	}
	if len(d.Tags) > 0 {
		h.Tags = oneLine(d.Tags.String())
	}
	return h
}

func negotiated(state tls.ConnectionState, opt connstring.TLS, checker *ocsp.Checker) *TLS {
	cert := state.PeerCertificates[0] // a server always presents one
	var names []string
	for _, name := range cert.DNSNames {
		names = append(names, oneLine(name))
	}
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	return &TLS{
		Version: tls.VersionName(state.Version), Cipher: tls.CipherSuiteName(state.CipherSuite),
		Subject: oneLine(cert.Subject.String()), Names: names,
		Issuer: oneLine(cert.Issuer.String()), NotAfter: cert.NotAfter.UTC(),
		Skipped: skipped(opt), OCSP: revocation(state, checker),
	}
}

func skipped(opt connstring.TLS) string {
	switch {
	case opt.Insecure, opt.AllowInvalidCertificates && opt.AllowInvalidHostnames:
		return "authority, name"
	case opt.AllowInvalidCertificates:
		return "authority"
	case opt.AllowInvalidHostnames:
		return "name"
	}
	return ""
}

// revocation returns the revocation status of a certificate that was accepted.
func revocation(state tls.ConnectionState, checker *ocsp.Checker) string {
	if checker == nil {
		return "not checked"
	}
	chain := state.PeerCertificates // without the root; the only one with tlsAllowInvalidHostnames
	if len(state.VerifiedChains) > 0 {
		chain = state.VerifiedChains[0]
	}
	source := "a responder"
	if len(state.OCSPResponse) > 0 {
		source = "the server"
	}
	switch r := checker.Known(chain); {
	case r.Status == ocsp.Good:
		return fmt.Sprintf("good until %s, according to %s", stamp(r.NextUpdate), source)
	case len(state.OCSPResponse) > 0:
		return "stapled"
	case len(chain[0].OCSPServer) == 0:
		return "unknown: no response stapled and no responder named"
	}
	return "unknown: no response stapled, and no responder answered"
}

// deployment returns what server selection sees in t. heard holds the hosts that were asked.
func deployment(t description.Topology, heard []*description.Server, rp *selection.ReadPreference,
	threshold time.Duration,
) *Deployment {
	d := &Deployment{
		Kind: t.Kind.String(), SetName: oneLine(t.SetName), ReadPreference: rp.String(),
		LogicalSessionTimeoutMinutes: t.LogicalSessionTimeoutMinutes,
	}
	if t.CompatibilityError != nil {
		d.Problem = oneLine(t.CompatibilityError.Error())
		return d
	}
	// Neither selection can fail.
	writable, _ := selection.Write().Select(t, t.Servers)
	nearest, _ := selection.Read(&selection.ReadPreference{Mode: selection.Nearest}).Select(t,
		t.Servers)
	readable, err := selection.Read(rp).Select(t, t.Servers)
	if err != nil {
		d.Problem = oneLine(err.Error())
	}
	near := selection.InWindow(readable, threshold)
	d.selectable = len(nearest) > 0
	d.Writable, d.Readable = addresses(writable), addresses(near)
	d.TooFar = without(addresses(readable), d.Readable)
	for _, s := range heard {
		if s.IsAvailable() && (t.Server(s.Address) == nil || !t.Server(s.Address).IsAvailable()) {
			d.LeftOut = append(d.LeftOut, LeftOut{s.Address, oneLine(whyLeftOut(t, s))})
		}
	}
	return d
}

func without(all, some []address.Address) (rest []address.Address) {
	for _, a := range all {
		if len(some) > 0 && a == some[0] { // both have the same order
			some = some[1:]
			continue
		}
		rest = append(rest, a)
	}
	return rest
}

// whyLeftOut returns the reason that description.Topology.Apply left s out.
func whyLeftOut(t description.Topology, s *description.Server) string {
	switch now := t.Server(s.Address); {
	case now != nil && now.LastError != nil:
		return now.LastError.Error()
	case t.SetName != "" && s.SetName != t.SetName && s.SetName != "":
		return fmt.Sprintf("is a member of the set %s, not of %s", s.SetName, t.SetName)
	case s.Me != "" && s.Me != s.Address:
		return fmt.Sprintf("is in the set under the name %s", s.Me)
	case t.Kind == description.KindUnknown:
		return fmt.Sprintf("a %s cannot be one of several hosts", s.Kind)
	}
	return fmt.Sprintf("a %s cannot be part of a deployment of kind %s", s.Kind, t.Kind)
}

// verdict returns the reason that the deployment cannot be used although hosts answered, or nil.
func (d *Deployment) verdict() error {
	switch {
	case d.Problem != "":
		return errors.New(d.Problem)
	case d.selectable:
		return nil
	}
	text := "no server can be selected: the deployment is " + d.Kind
	for _, l := range d.LeftOut {
		text += fmt.Sprintf("; %s: %s", l.Address, l.Reason)
	}
	return errors.New(text)
}

// oneLine replaces control characters in foreign texts, which could change the terminal, and
// shortens them to one line.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// milliseconds converts a duration, to two decimal places.
func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}
