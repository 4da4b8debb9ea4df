// Package connstring reads connection strings, mongodb:// and mongodb+srv://, into a Config. It resolves no name,
// opens no file and applies no defaults but those of authentication; what an option means is up to its consumer.
package connstring

import (
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/address"
)

// Config is what a connection string says. A nil pointer, an empty string or a nil slice means that the string does
// not say it. However it is printed, every secret is masked.
type Config struct {
	// Hosts are the seeds. With SRV set, SRVHost is the name to look up, and Hosts is empty until Resolve fills it.
	Hosts   []address.Address
	SRV     bool
	SRVHost string

	// Database is the path of the string. It is also where a user is looked up when AuthSource is not given.
	Database string

	// HasCredential says that the string asks for authentication; the fields below matter only then.
	HasCredential bool
	Username      string
	Password      string
	HasPassword   bool // an empty password is one
	AuthSource    string
	// AuthMechanism is one of the mechanisms' names, or empty: to be negotiated.
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
	MaxIdleTime      *time.Duration // 0: no limit, as for all times below
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

	// Warnings are what was ignored, and what should be written differently. None is fatal.
	Warnings []Warning

	given given // only with SRV: what no TXT record overrides
}

// Property is one entry of authMechanismProperties.
type Property struct{ Name, Value string }

// Tag is one name and value that a server has to carry.
type Tag struct{ Name, Value string }

// TagSet is one entry of readPreferenceTags; the empty one matches every server.
type TagSet []Tag

// WriteConcern is w, journal and wTimeoutMS.
type WriteConcern struct {
	Nodes      *int32 // a numeric w
	Tag        string // a textual w
	Journal    *bool
	WTimeoutMS *int64
}

// TLS are the tls options. Enabled is nil where the string does not say; any other field may be set without it.
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

// DefaultProxyPort is the port of a proxy that is given without one.
const DefaultProxyPort = 1080

// Proxy is a SOCKS5 proxy; Host is empty where there is none.
type Proxy struct {
	Host     string
	Port     uint16
	Username string
	Password string
}

// Warning is one thing about a string that was ignored or is out of date.
type Warning struct {
	Option  string // as it was written
	Problem string // a whole sentence, without secrets
}

func (w Warning) String() string { return w.Problem }

// UseTLS says whether connections are encrypted: as the string says, else whether it is a mongodb+srv string. No other
// tls option turns it on.
func (c *Config) UseTLS() bool {
	if c.TLS.Enabled != nil {
		return *c.TLS.Enabled
	}
	return c.SRV
}

// Property is the value of one of the AuthMechanismProperties. Names are compared without regard to case.
func (c *Config) Property(name string) (string, bool) {
	for _, p := range c.AuthMechanismProperties {
		if strings.EqualFold(p.Name, name) {
			return p.Value, true
		}
	}
	return "", false
}
