// Package config combines flags, environment variables and a YAML file into one validated Config.
// A table in options.go has all options; the help text and docs/configuration.md are made from
// it. The package opens the files that options name. It opens no socket and looks up no name.
package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/service/clientaddr"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/seal"
)

// Config holds all settings of the gateway. Load makes it; it does not change afterwards.
type Config struct {
	// MongoDB describes the deployment, from the connection string and the options beside it. It
	// hides its secrets when it is printed.
	MongoDB connstring.Config
	// DeploymentName names the deployment in tokens; empty: see Deployment.
	DeploymentName string
	// GRPC and REST are the two public listeners.
	GRPC GRPC
	REST REST
	// DataAPI describes the Atlas Data API on the REST listener.
	DataAPI DataAPI
	// Console describes the console on the REST listener.
	Console Console
	// DebugAddress is the address of the debugging listener; empty means none.
	DebugAddress string
	// AdminAddress is the address of the listener with the metrics; empty means none.
	AdminAddress string
	Metrics      Metrics
	// TLS applies to both listeners, if it is set.
	TLS TLS
	// AllowPlaintext and AllowUnauthenticated permit listeners that other machines can reach to
	// have no TLS, and no authentication.
	AllowPlaintext, AllowUnauthenticated bool
	// AllowReadable lists the files with secrets that others may be able to read.
	AllowReadable []string
	// Policy says what clients may do.
	Policy Policy
	// Auth says which credentials of clients count.
	Auth        Auth
	Connections Connections
	// Proxies says whose word on a client's address counts. See Proxied.
	Proxies clientaddr.Proxies
	// AddressesFile, if not empty, receives the addresses of the listeners once they are bound.
	AddressesFile string
	// HandleKeys seal the tokens of cursors: the first one seals, all open. None means a random
	// key for this process.
	HandleKeys []seal.Key
	// HandleKeysFile is the file with the keys; empty if they have another source. See
	// ParseHandleKeys.
	HandleKeysFile string
	// HandleKeysSum is SumHandleKeys of the text of the keys.
	HandleKeysSum [sha256.Size]byte
	// Idempotency has the key of calls with an Idempotency-Key. None means a random key for this
	// process.
	Idempotency idempotency.Schedule
	// IdempotencyKeyFile is the file with that key; empty if it has another source.
	IdempotencyKeyFile string
	// IdempotencyKeySum is SumHandleKeys of the text of the key.
	IdempotencyKeySum [sha256.Size]byte
	// Token says where access tokens for MONGODB-OIDC come from.
	Token Token
	// Replica says how this gateway and its other replicas find each other.
	Replica       Replica
	Cursors       Cursors
	Transactions  Transactions
	Pages         Pages
	Streams       Streams
	ChangeStreams ChangeStreams
	// MemoryBudget is what all calls together may hold, in bytes; 0: see package memory.
	MemoryBudget int64
	// MaxRequestSize limits one request message or body, in bytes.
	MaxRequestSize int64
	// MinCompressed is the size from which a response is compressed, in bytes.
	MinCompressed int64
	// RequestTimeout limits unary calls without a deadline; 0 means no limit.
	RequestTimeout time.Duration
	// MaxRequestTimeout limits unary calls, whatever deadline they have; 0 means no limit.
	MaxRequestTimeout time.Duration
	// MaxAbandoned is the share of a pool for operations whose clients have gone, above 0 and at
	// most 1.
	MaxAbandoned float64
	Requests     Requests
	// DrainLinger is how long the gateway still accepts calls after a signal to stop.
	DrainLinger time.Duration
	// DrainTimeout is how long work in flight may take after that.
	DrainTimeout time.Duration
	Log          Log
	Tracing      Tracing
	// ServerTexts says whether errors tell clients addresses of servers and their texts.
	ServerTexts ServerTexts
	// Audit is the file of the audit log, or AuditLog; empty means that there is none.
	Audit string

	// File is the configuration file, empty if there is none, and FileSum is watch.Sum of its text.
	File, FileSum string

	// Warnings has the problems that Load found and did not refuse.
	Warnings []string

	mongoOptions map[string][]string
	mongoUser    userTexts
	values       []value // one per option, in the table's order
	flags        *pflag.FlagSet
	environ      []string
}

// Format keeps the secrets out of every verb.
func (Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "config.Config(***)") }

// Token names the source of access tokens. At most one field is set; none leaves it to the
// connection string.
type Token struct {
	File    string
	Command []string // a program and its arguments
}

// Metrics says which metrics there are.
type Metrics struct {
	// NativeHistograms adds native histograms to the classic ones.
	NativeHistograms bool
}

// GRPC describes the gRPC listener.
type GRPC struct {
	Address    string // empty: no listener
	Reflection bool
	// Proxied says that listed proxies begin each connection with a header of the PROXY protocol.
	Proxied bool
}

// REST describes the REST listener.
type REST struct {
	Address string // empty: no listener
	Proxied bool   // as of GRPC
	// Hosts lists the names that clients may use; see Config.RESTHosts.
	Hosts []string
	CORS  CORS
}

// CORS says which pages of other origins a browser lets call. Without Origins there are none.
type CORS struct {
	Origins, Headers []string
	Credentials      bool
}

// DataAPI describes the Atlas Data API. Without Sources it is not served.
type DataAPI struct {
	Sources      []string
	InsertStatus int
}

// TLS names the certificate that the listeners serve with, and the authorities of their clients.
type TLS struct {
	CertificateFile, KeyFile string
	ClientAuthorityFile      string // empty: clients have no certificates
	RequireClient            bool
}

// Enabled reports whether the listeners use TLS.
func (t TLS) Enabled() bool { return t.CertificateFile != "" }

// Connections limits the connections of clients.
type Connections struct {
	// Max limits the connections in all, and MaxPerAddress those of one address; 0 means no limit.
	Max, MaxPerAddress int
	MaxAge             time.Duration // 0: no limit
	MaxStreams         int
}

// Cursors limits the resources of open cursors.
type Cursors struct {
	Idle time.Duration
	// UnreadIdle is how long the next page of a GET may stay unread.
	UnreadIdle time.Duration
	PageMemory int64
	// MaxPerPrincipal limits the cursors of one principal; 0 means no limit.
	MaxPerPrincipal int
	// MaxPinned is the part of a pool's connections that may be pinned, above 0 and at most 1.
	MaxPinned float64
}

// Transactions limits open transactions.
type Transactions struct {
	// Idle is how long a transaction waits for its next call.
	Idle time.Duration
}

// Replica describes the listener for other replicas.
type Replica struct {
	Address string // empty: no listener, and no other replicas
	// Advertise is the address for the other replicas. If Address has the port 0, its port may be
	// 0, too: the port is then the port that the kernel chose.
	Advertise string
	Peers     []string
}

// Pages limits a page, and a message of a stream.
type Pages struct {
	MaxSize int64
}

// Streams limits what open streams may hold, all together.
type Streams struct {
	Memory int64
	// Max limits the open streams of all principals; 0 means no limit, and Auto one that follows
	// from the memory budget.
	Max int
	// MaxPerPrincipal limits the open streams of one principal; 0 means no limit.
	MaxPerPrincipal int
}

// ChangeStreams limits the open change streams of one client. A limit that is 0 does not limit
// anything.
type ChangeStreams struct {
	// MaxPerPrincipal and MaxPerTicket limit those of one principal, and those of one ticket.
	MaxPerPrincipal, MaxPerTicket int
}

// Requests limits the requests of all principals and of each. A limit that is 0 does not limit
// anything.
type Requests struct {
	// MaxItems limits the items of all lists of a request.
	MaxItems int
	// MaxInFlight and MaxInFlightPerPrincipal limit the unary calls, and the commands of streams,
	// in flight.
	MaxInFlight, MaxInFlightPerPrincipal int
	// Rate and RatePerPrincipal limit calls per second.
	Rate, RatePerPrincipal int
	// QueueTime is how long a call waits for what does not fit.
	QueueTime time.Duration
}

// autoInFlight returns the limit on calls in flight for connection pools of a size; 0 means no
// limit. A principal that is alone gets 80 % of it, so that calls that hang do not take all
// connections from others.
func autoInFlight(maxPoolSize *uint64) int {
	size := uint64(pool.DefaultMaxSize)
	if maxPoolSize != nil {
		size = *maxPoolSize
	}
	return int(min(size, math.MaxInt32))
}

// Tracing says what is traced, if the environment names a collector.
type Tracing struct {
	// Sampling is the share of traces that is recorded; nil: the environment says it.
	Sampling *float64
	// Comment says whether the comments of commands name the trace.
	Comment bool
}

// Log says what is logged, and how.
type Log struct {
	Level  slog.Level
	Format LogFormat
	// Driver lists the components of the driver whose messages are logged at Debug.
	Driver []string
	// SlowRequest is the time from which a request is logged as slow; 0: none is.
	SlowRequest time.Duration
}

// ServerTexts says whether clients get the texts of servers.
type ServerTexts string

// The values of ServerTexts.
const (
	TextsAuto ServerTexts = "auto" // if clients are not authenticated
	TextsShow ServerTexts = "show"
	TextsHide ServerTexts = "hide"
)

// Terse reports whether errors tell clients neither addresses of servers nor their texts.
func (c *Config) Terse() bool {
	return c.ServerTexts == TextsHide || c.ServerTexts == TextsAuto && c.AuthEnabled()
}

// AuditLog is the Config.Audit of an audit log that is part of the gateway's log.
const AuditLog = "log"

// LogFormat names a format of log lines.
type LogFormat string

// The formats of log lines.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Error reports one setting that cannot be used: the option, the source of its value, and the
// problem.
type Error struct {
	Option  string // as the file spells it
	Problem string
	// Source is such as "--log-level", "MOORING_LOG_LEVEL" or "/etc/mooring.yaml"; empty if the
	// option was not set.
	Source string
}

func (e *Error) Error() string {
	if e.Source == "" {
		return fmt.Sprintf("option %s: %s", e.Option, e.Problem)
	}
	return fmt.Sprintf("option %s (from %s): %s", e.Option, e.Source, e.Problem)
}

// OnCommandLine reports whether the command line is to blame: it has the value, or it lacks the
// connection string, which no other source has either.
func (e *Error) OnCommandLine() bool {
	return strings.HasPrefix(e.Source, "--") || e.Option == uriOption && e.Source == ""
}

// WrongURI returns the error of a connection string that Load has read and that turns out to be
// unusable, with the source of the string.
func (c *Config) WrongURI(err error) error {
	e := &Error{Option: uriOption, Problem: err.Error()}
	for _, v := range c.values {
		if v.option.Name == uriOption {
			e.Source = v.source
		}
	}
	return e
}

// Deployment returns the name of the deployment: gateways with the same name can continue each
// other's cursors. It is the configured name, else the SRV name, else the name of the replica
// set, else the list of hosts. That list is the last choice since it may change while the
// deployment stays the same.
func (c *Config) Deployment() string {
	switch {
	case c.DeploymentName != "":
		return "name " + c.DeploymentName
	case c.MongoDB.SRV:
		return "srv " + c.MongoDB.SRVHost
	case c.MongoDB.ReplicaSet != "":
		return "replica set " + c.MongoDB.ReplicaSet
	}
	hosts := make([]string, len(c.MongoDB.Hosts))
	for i, h := range c.MongoDB.Hosts {
		hosts[i] = string(h)
	}
	slices.Sort(hosts)
	return "hosts " + strings.Join(hosts, ",")
}

// check checks the options that depend on each other.
func (c *Config) check() error {
	var errs []error
	refuse := func(option, problem string) {
		errs = append(errs, &Error{Option: option, Problem: problem})
	}
	if c.GRPC.Address == "" && c.REST.Address == "" {
		refuse("grpc.address", "is none, and so is rest.address: set one of them to an address")
	}
	if (c.TLS.CertificateFile == "") != (c.TLS.KeyFile == "") {
		refuse("tls.certificateFile", "must be set together with tls.keyFile")
	}
	if c.TLS.ClientAuthorityFile != "" && !c.TLS.Enabled() {
		refuse("tls.clientAuthorityFile", "needs tls.certificateFile: without TLS there are no "+
			"client certificates")
	}
	if c.TLS.RequireClient && c.TLS.ClientAuthorityFile == "" {
		refuse("tls.clientCertificates", "needs tls.clientAuthorityFile")
	}
	c.Auth.check(refuse)
	c.Console.check(&c.Auth.JWT, refuse)
	if c.REST.CORS.Credentials && slices.Contains(c.REST.CORS.Origins, anyHost) {
		refuse("rest.cors.credentials", "cannot be used with * in rest.cors.origins: every "+
			"page of every site could act as the user of the browser")
	}
	c.Policy.read(refuse)
	c.checkOperators(refuse)
	c.warnWithoutPolicy()
	c.checkProxies(refuse)
	c.checkExposure("grpc.address", c.GRPC.Address, refuse)
	c.checkExposure("rest.address", c.REST.Address, refuse)
	for _, err := range []error{
		c.CheckSecretFile(c.TLS.KeyFile), c.CheckSecretFile(c.Token.File), c.CheckMongoKeyFile(),
	} {
		if err != nil {
			refuse("allowReadable", err.Error())
		}
	}
	c.complete()
	c.Token.check(&c.MongoDB, refuse)
	c.Replica.check(len(c.HandleKeys) > 0, refuse)
	c.checkIdempotency(refuse)
	if c.Replica.Address != "" && len(c.Replica.Peers) == 0 {
		c.Warnings = append(c.Warnings,
			"replica.peers is empty: cursors cannot move to another replica when this one "+
				"stops")
	}
	return errors.Join(errs...)
}

// checkIdempotency refuses a gateway whose tokens outlive it, and whose calls with a key do not: a
// call that is repeated after a restart, or at another replica, would be done twice.
func (c *Config) checkIdempotency(refuse func(option, problem string)) {
	if len(c.HandleKeys) > 0 && c.Idempotency.Len() == 0 {
		refuse(idempotencyKey, "is required with handle.keys: without it, calls with an "+
			"Idempotency-Key would be done twice if they are repeated at another replica (make "+
			"one with: mooring key new; after an upgrade, take the first of the handle keys)")
	}
	if from, until, ok := c.Idempotency.Refusal(time.Now()); ok {
		c.Warnings = append(c.Warnings, fmt.Sprintf("idempotency.key changes: calls with an "+
			"Idempotency-Key are refused from %s until %s", utc(from), utc(until)))
	}
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// complete computes the values that follow from other options.
func (c *Config) complete() {
	if c.Requests.MaxInFlight == Auto {
		c.Requests.MaxInFlight = autoInFlight(c.MongoDB.MaxPoolSize)
	}
}

// check refuses a second source of tokens, and a source that no mechanism uses.
func (t *Token) check(uri *connstring.Config, refuse func(option, problem string)) {
	option := "mongodb.tokenFile"
	switch {
	case t.File != "" && len(t.Command) > 0:
		refuse(option, "cannot be used together with mongodb.tokenCommand")
		return
	case len(t.Command) > 0:
		option = "mongodb.tokenCommand"
	case t.File == "":
		return
	}
	if _, ok := uri.Property("ENVIRONMENT"); ok {
		refuse(option, "cannot be used together with ENVIRONMENT in the connection string")
	}
	if uri.AuthMechanism != "MONGODB-OIDC" {
		refuse(option, "needs authMechanism=MONGODB-OIDC in the connection string")
	}
}

// check completes the advertised address, and refuses combinations that do not work.
func (r *Replica) check(keyed bool, refuse func(option, problem string)) {
	if r.Address == "" {
		if r.Advertise != "" {
			refuse("replica.advertise",
				"needs replica.address: there is no listener for other replicas")
		}
		if len(r.Peers) > 0 {
			refuse("replica.peers",
				"needs replica.address: there is no listener for other replicas")
		}
		return
	}
	if !keyed {
		refuse("replica.address",
			"needs handle.keys: replicas know each other by them (make one with: mooring key new)")
	}
	host, port, _ := net.SplitHostPort(r.Address) // parseAddress has checked it
	switch own, _, err := net.SplitHostPort(r.Advertise); {
	case r.Advertise != "" && err == nil && own != "":
	case r.Advertise != "":
		r.Advertise = net.JoinHostPort(r.Advertise, port)
	case isWildcard(host):
		refuse("replica.advertise",
			fmt.Sprintf("is required: other replicas cannot reach this one at %s", r.Address))
	default:
		r.Advertise = r.Address
	}
	if text, n := longestAddress(r.Advertise), paging.MaxReplicaBytes; len(text) > n {
		refuse("replica.advertise",
			fmt.Sprintf("%s has %d bytes, but the token of a cursor has room for %d: "+
				"write an IP address",
				r.Advertise, len(text), n))
	}
}

// longestAddress returns the address, with the longest possible port if the kernel chooses the
// port.
func longestAddress(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && port == "0" {
		return net.JoinHostPort(host, "65535")
	}
	return address
}

// isWildcard reports whether a listener on that host listens on all addresses.
func isWildcard(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}
