// Package connstring reads connection strings, mongodb:// and mongodb+srv://, into a Config. It
// resolves no name, opens no file and applies no defaults but those of authentication; the
// consumer of an option decides what it means.
package connstring

import (
	"reflect"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/address"
)

// Config holds the content of a connection string. A nil pointer, an empty string or a nil slice
// means that the string does not set the field. Every way of printing it masks all secrets.
type Config struct {
	// Hosts are the seeds. With SRV set, SRVHost is the name to look up, and Hosts is empty until
	// Resolve fills it.
	Hosts   []address.Address
	SRV     bool
	SRVHost string

	// Database is the path of the string. It is also the database of the user if AuthSource is not
	// given.
	Database string

	// HasCredential is true if the string asks for authentication; the fields below matter only
	// then.
	HasCredential bool
	Username      string
	Password      string
	HasPassword   bool // an empty password is one
	AuthSource    string
	// AuthMechanism is the name of a mechanism. If it is empty, the mechanism is negotiated.
	AuthMechanism           string
	AuthMechanismProperties []Property

	AppName          string
	ReplicaSet       string
	DirectConnection *bool
	LoadBalanced     bool
	SRVMaxHosts      *int32
	SRVServiceName   string

	TLS TLS

	MaxPoolSize      *uint64 // 0: no maximum
	MinPoolSize      *uint64
	MaxConnecting    *uint64
	MaxIdleTime      *time.Duration // 0: no limit, as for all timeouts below
	WaitQueueTimeout *time.Duration

	ConnectTimeout         *time.Duration
	SocketTimeout          *time.Duration
	ServerSelectionTimeout *time.Duration
	HeartbeatInterval      *time.Duration
	LocalThreshold         *time.Duration
	Timeout                *time.Duration
	ServerMonitoringMode   string // "stream", "poll" or "auto"

	ReadPreference     string // one of the five modes, as the specification spells them
	ReadPreferenceTags []TagSet
	MaxStaleness       *time.Duration
	ReadConcernLevel   string
	WriteConcern       WriteConcern

	RetryWrites *bool
	RetryReads  *bool

	// MaxAdaptiveRetries limits the retries of an operation that met an overloaded server.
	MaxAdaptiveRetries *int32
	// EnableOverloadRetargeting has such a retry prefer another server.
	EnableOverloadRetargeting bool

	Compressors          []string
	ZlibCompressionLevel *int32

	Proxy Proxy

	// Warnings lists what was ignored and what should be written differently.
	Warnings []Warning

	given given // only with SRV: what no TXT record overrides
}

// Property holds one entry of authMechanismProperties.
type Property struct{ Name, Value string }

// Tag names a tag and the value that a server must have for it.
type Tag struct{ Name, Value string }

// TagSet holds one entry of readPreferenceTags. The empty one matches every server.
type TagSet []Tag

// WriteConcern holds w, journal and wTimeoutMS.
type WriteConcern struct {
	Nodes      *int32 // a numeric w
	Tag        string // a textual w
	Journal    *bool
	WTimeoutMS *int64
}

// TLS holds the tls options. Enabled is nil if the string does not set it; any other field may be
// set without it.
type TLS struct {
	Enabled                           *bool
	CAFile                            string
	CertificateKeyFile                string
	CertificateKeyFilePassword        string
	Insecure                          bool
	AllowInvalidCertificates          bool
	AllowInvalidHostnames             bool
	DisableOCSPEndpointCheck          bool
	DisableCertificateRevocationCheck bool
}

// DefaultProxyPort is used if the string gives a proxy without a port.
const DefaultProxyPort = 1080

// Proxy describes a SOCKS5 proxy. Host is empty if there is none.
type Proxy struct {
	Host     string
	Port     uint16
	Username string
	Password string
}

// Warning describes one part of a string that was ignored or is out of date.
type Warning struct {
	Option  string // as it was written
	Problem string // a whole sentence, without secrets
}

func (w Warning) String() string { return w.Problem }

// UseTLS reports whether connections use TLS: TLS.Enabled if that is set, otherwise whether it is a
// mongodb+srv string. No other tls option turns it on.
func (c *Config) UseTLS() bool {
	if c.TLS.Enabled != nil {
		return *c.TLS.Enabled
	}
	return c.SRV
}

// SameButUser reports whether two Configs have the same meaning, apart from the user name, if both
// have one, and the password. Unlike String it knows the other secrets.
func (c Config) SameButUser(other Config) bool {
	for _, x := range []*Config{&c, &other} {
		if x.Username != "" {
			x.Username = masked
		}
		x.Password, x.HasPassword, x.Warnings = "", false, nil
	}
	return reflect.DeepEqual(c, other)
}

// Property returns the value of one of the AuthMechanismProperties. The case of names does not
// matter.
func (c *Config) Property(name string) (string, bool) {
	for _, p := range c.AuthMechanismProperties {
		if strings.EqualFold(p.Name, name) {
			return p.Value, true
		}
	}
	return "", false
}
