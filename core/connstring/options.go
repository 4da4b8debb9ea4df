package connstring

import (
	"math"
	"slices"
	"time"
)

// Option describes one option of connection strings.
type Option struct {
	// Name is spelled as in the specification; in a connection string its case does not matter.
	Name    string
	Kind    string // what its value looks like, for people
	Default string // for people; empty: there is none
	Doc     string // one line for people

	setting
	strict      bool       // a value that does not do is an error, not a warning
	secret      bool       // the value is never part of a message
	repeat      repetition // what a second appearance means
	aliasOf     string     // the name under which it is shown
	replacedBy  string     // the name that is used today
	unsupported string     // why it is known and ignored
}

// setting stores an option in a Config and reads it from there.
type setting struct {
	apply func(p *parser, value string) error
	// show returns the values as a connection string would have them, with secrets masked: none if
	// the Config does not set the option. show is nil for another name of an option.
	show func(c *Config) []string
}

type repetition uint8

const (
	lastCounts repetition = iota // with a warning
	allCount                     // in their order
	mustAgree                    // no harm unless they differ, which check finds
	refused
)

// Options returns all options, in the order of the documentation. Known options without effect are
// among them.
func Options() []Option { return slices.Clone(options) }

// Secret reports whether a value of the option must not be shown.
func (o Option) Secret() bool { return o.secret }

// main returns the name in lower case, or that of the option that this is another name of.
func (o *Option) main() string {
	switch {
	case o.aliasOf != "":
		return lower(o.aliasOf)
	case o.replacedBy != "":
		return lower(o.replacedBy)
	}
	return lower(o.Name)
}

var rows = func() map[string]*Option {
	m := make(map[string]*Option, len(options))
	for i := range options {
		m[lower(options[i].Name)] = &options[i]
	}
	return m
}()

var options = []Option{
	{
		Name: "appName", Kind: "text", Default: "",
		Doc: "the application's name in the servers' logs, up to 128 bytes",
		setting: setting{
			apply: appName,
			show:  showText(func(c *Config) *string { return &c.AppName }),
		},
	},

	// Authentication.
	{
		Name: "authMechanism", Kind: "name", Default: "negotiated", strict: true,
		Doc: "how to authenticate: SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509, MONGODB-AWS, " +
			"MONGODB-OIDC, GSSAPI or PLAIN; anything else is an error",
		setting: mechanismName(),
	},
	{
		Name: "authMechanismProperties", Kind: "name:value,…", Default: "", secret: true,
		Doc: "properties of the mechanism; a value may have colons, but no comma, encoded " +
			"or not",
		setting: setting{apply: properties, show: showProperties},
	},
	{
		Name: "authSource", Kind: "database", Default: "the path, else by mechanism", strict: true,
		Doc: "where the user is defined; empty is an error",
		setting: setting{
			apply: text(func(c *Config) *string { return &c.AuthSource }).apply,
			show:  showAuthSource,
		},
	},
	{
		Name: "gssapiServiceName", Kind: "text", Default: "mongodb",
		replacedBy: "authMechanismProperties",
		Doc:        "old name of authMechanismProperties=SERVICE_NAME:…",
		setting:    setting{apply: gssapiServiceName},
	},

	// The deployment.
	{
		Name: "replicaSet", Kind: "text", Default: "",
		Doc:     "the name of the replica set; servers of another are not used",
		setting: text(func(c *Config) *string { return &c.ReplicaSet }),
	},
	{
		Name: "directConnection", Kind: "boolean", Default: "false",
		Doc:     "talk to the one host only, whatever it is",
		setting: boolean(func(c *Config) **bool { return &c.DirectConnection }),
	},
	{
		Name: "loadBalanced", Kind: "boolean", Default: "false",
		Doc:     "the one host is a load balancer",
		setting: plainBoolean(func(c *Config) *bool { return &c.LoadBalanced }),
	},
	{
		Name: "srvMaxHosts", Kind: "number", Default: "0",
		Doc:     "mongodb+srv: use so many of the hosts, chosen at random; 0: all",
		setting: number(0, math.MaxInt32, func(c *Config) **int32 { return &c.SRVMaxHosts }),
	},
	{
		Name: "srvServiceName", Kind: "text", Default: "mongodb", strict: true,
		Doc: "mongodb+srv: the service to look up, _name._tcp",
		setting: setting{
			apply: srvServiceName,
			show:  showText(func(c *Config) *string { return &c.SRVServiceName }),
		},
	},

	// TLS.
	{
		Name: "tls", Kind: "boolean", Default: "false; true for mongodb+srv", repeat: mustAgree,
		Doc:     "encrypt connections; no other tls option turns it on",
		setting: boolean(func(c *Config) **bool { return &c.TLS.Enabled }),
	},
	{
		Name: "ssl", Kind: "boolean", Default: "as tls", repeat: mustAgree, aliasOf: "tls",
		Doc:     "another name of tls; what they say must agree",
		setting: setting{apply: boolean(func(c *Config) **bool { return &c.TLS.Enabled }).apply},
	},
	{
		Name: "tlsCAFile", Kind: "path", Default: "the system's",
		Doc:     "the certificates to trust, PEM",
		setting: text(func(c *Config) *string { return &c.TLS.CAFile }),
	},
	{
		Name: "tlsCertificateKeyFile", Kind: "path", Default: "",
		Doc:     "the gateway's certificate, its chain and its key, PEM",
		setting: text(func(c *Config) *string { return &c.TLS.CertificateKeyFile }),
	},
	{
		Name: "tlsCertificateKeyFilePassword", Kind: "text", Default: "", secret: true,
		Doc:     "decrypts that key",
		setting: secretText(func(c *Config) *string { return &c.TLS.CertificateKeyFilePassword }),
	},
	{
		Name: "tlsInsecure", Kind: "boolean", Default: "false",
		Doc: "accept any certificate: neither its issuer, its dates nor its name are looked " +
			"at, nor whether it is revoked",
		setting: plainBoolean(func(c *Config) *bool { return &c.TLS.Insecure }),
	},
	{
		Name: "tlsAllowInvalidCertificates", Kind: "boolean", Default: "false",
		Doc: "accept any certificate that is for the server's name; revocation is not " +
			"looked at",
		setting: plainBoolean(func(c *Config) *bool { return &c.TLS.AllowInvalidCertificates }),
	},
	{
		Name: "tlsAllowInvalidHostnames", Kind: "boolean", Default: "false",
		Doc:     "accept any trusted certificate, whatever name it is for",
		setting: plainBoolean(func(c *Config) *bool { return &c.TLS.AllowInvalidHostnames }),
	},
	{
		Name: "tlsDisableOCSPEndpointCheck", Kind: "boolean", Default: "false",
		Doc:     "do not ask OCSP responders",
		setting: plainBoolean(func(c *Config) *bool { return &c.TLS.DisableOCSPEndpointCheck }),
	},
	{
		Name: "tlsDisableCertificateRevocationCheck", Kind: "boolean", Default: "false",
		Doc: "do not look at all whether certificates are revoked",
		setting: plainBoolean(func(c *Config) *bool {
			return &c.TLS.DisableCertificateRevocationCheck
		}),
	},

	// Connections.
	{
		Name: "maxPoolSize", Kind: "number", Default: "100",
		Doc:     "connections to one server at most; 0: no maximum",
		setting: count(0, func(c *Config) **uint64 { return &c.MaxPoolSize }),
	},
	{
		Name: "minPoolSize", Kind: "number", Default: "0",
		Doc:     "connections to one server at least",
		setting: count(0, func(c *Config) **uint64 { return &c.MinPoolSize }),
	},
	{
		Name: "maxConnecting", Kind: "number ≥ 1", Default: "2",
		Doc:     "connections to one server that are being made at once",
		setting: count(1, func(c *Config) **uint64 { return &c.MaxConnecting }),
	},
	{
		Name: "maxIdleTimeMS", Kind: "milliseconds", Default: "0",
		Doc:     "how long a connection may be idle; 0: no limit",
		setting: millis(0, func(c *Config) **time.Duration { return &c.MaxIdleTime }),
	},
	{
		Name: "waitQueueTimeoutMS", Kind: "milliseconds", Default: "0",
		Doc:     "deprecated: how long to wait for a connection; 0: as long as the request has",
		setting: millis(0, func(c *Config) **time.Duration { return &c.WaitQueueTimeout }),
	},
	{
		Name: "connectTimeoutMS", Kind: "milliseconds", Default: "10000",
		Doc: "how long making a connection may take, without the time to obtain a credential, " +
			"and a monitor's check; 0: no limit",
		setting: millis(0, func(c *Config) **time.Duration { return &c.ConnectTimeout }),
	},
	{
		Name: "socketTimeoutMS", Kind: "milliseconds", Default: "0",
		Doc:     "deprecated: how long a request and its reply may take; 0: no limit",
		setting: millis(0, func(c *Config) **time.Duration { return &c.SocketTimeout }),
	},
	{
		Name: "compressors", Kind: "names", Default: "none",
		Doc: "snappy, zlib, zstd: compression, the preferred first",
		setting: setting{
			apply: compressors,
			show:  func(c *Config) []string { return joined(c.Compressors) },
		},
	},
	{
		Name: "zlibCompressionLevel", Kind: "-1 to 9", Default: "-1",
		Doc:     "zlib's level; -1: its default, 0: none",
		setting: number(-1, 9, func(c *Config) **int32 { return &c.ZlibCompressionLevel }),
	},
	{
		Name: "proxyHost", Kind: "host", Default: "", repeat: refused, strict: true,
		Doc: "SOCKS5 proxy for all connections; it looks the servers' names up",
		setting: setting{
			apply: proxyHost,
			show:  showText(func(c *Config) *string { return &c.Proxy.Host }),
		},
	},
	{
		Name: "proxyPort", Kind: "port", Default: "1080", repeat: refused,
		Doc:     "the proxy's port",
		setting: setting{apply: proxyPort, show: showProxyPort},
	},
	{
		Name: "proxyUsername", Kind: "text", Default: "", repeat: refused, strict: true,
		secret:  true,
		Doc:     "user at the proxy; empty: none",
		setting: maybeEmpty(func(c *Config) *string { return &c.Proxy.Username }),
	},
	{
		Name: "proxyPassword", Kind: "text", Default: "", repeat: refused, strict: true,
		secret:  true,
		Doc:     "password at the proxy; empty: none",
		setting: maybeEmpty(func(c *Config) *string { return &c.Proxy.Password }),
	},

	// Servers.
	{
		Name: "serverSelectionTimeoutMS", Kind: "milliseconds", Default: "30000",
		Doc: "how long to wait for a suitable server, and under `timeoutMS` for a connection to " +
			"it as well; 0: not at all",
		setting: millis(0, func(c *Config) **time.Duration { return &c.ServerSelectionTimeout }),
	},
	{
		Name: "heartbeatFrequencyMS", Kind: "milliseconds ≥ 500", Default: "10000",
		Doc:     "how often each server is checked",
		setting: millis(500, func(c *Config) **time.Duration { return &c.HeartbeatInterval }),
	},
	{
		Name: "localThresholdMS", Kind: "milliseconds", Default: "15",
		Doc:     "how much slower than the fastest suitable server one may be; 0: only the fastest",
		setting: millis(0, func(c *Config) **time.Duration { return &c.LocalThreshold }),
	},
	{
		Name: "serverMonitoringMode", Kind: "stream, poll or auto", Default: "auto",
		Doc: "how servers are watched; auto streams, but in a function as a service",
		setting: oneOf(func(c *Config) *string { return &c.ServerMonitoringMode }, "stream",
			"poll", "auto"),
	},

	// Operations.
	{
		Name: "timeoutMS", Kind: "milliseconds", Default: "",
		Doc:     "how long an operation may take, with all its commands; 0: no limit",
		setting: millis(0, func(c *Config) **time.Duration { return &c.Timeout }),
	},
	{
		Name: "readPreference", Kind: "mode", Default: "primary",
		Doc: "primary, primaryPreferred, secondary, secondaryPreferred or nearest",
		setting: oneOf(func(c *Config) *string { return &c.ReadPreference },
			"primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"),
	},
	{
		Name: "readPreferenceTags", Kind: "name:value,…", Default: "", repeat: allCount,
		Doc: "tags of the servers to read from; repeated: tried in their order, and an " +
			"empty one means any server",
		setting: setting{apply: readPreferenceTags, show: showTags},
	},
	{
		Name: "maxStalenessSeconds", Kind: "seconds", Default: "-1",
		Doc: "how far behind a secondary may be that is read from, at least 90 and the " +
			"check interval + 10 s; -1: no limit",
		setting: setting{apply: maxStaleness, show: showStaleness},
	},
	{
		Name: "readConcernLevel", Kind: "text", Default: "the server's",
		Doc:     "the read concern",
		setting: text(func(c *Config) *string { return &c.ReadConcernLevel }),
	},
	{
		Name: "w", Kind: "number or text", Default: "the server's",
		Doc:     "how many members, or which, acknowledge a write; a negative number is an error",
		setting: setting{apply: nodes, show: showNodes},
	},
	{
		Name: "journal", Kind: "boolean", Default: "the server's",
		Doc:     "acknowledge writes when they are in the journal",
		setting: boolean(func(c *Config) **bool { return &c.WriteConcern.Journal }),
	},
	{
		Name: "wTimeoutMS", Kind: "milliseconds, 64 bits", Default: "0",
		Doc:     "deprecated: how long to wait for acknowledgement; 0: no limit",
		setting: setting{apply: wTimeout, show: showWTimeout},
	},
	{
		Name: "wtimeout", Kind: "milliseconds, 64 bits", Default: "0", replacedBy: "wTimeoutMS",
		Doc:     "old name of wTimeoutMS",
		setting: setting{apply: wTimeout},
	},
	{
		Name: "retryWrites", Kind: "boolean", Default: "true",
		Doc:     "try a write once more that may have failed on the way",
		setting: boolean(func(c *Config) **bool { return &c.RetryWrites }),
	},
	{
		Name: "retryReads", Kind: "boolean", Default: "true",
		Doc:     "try a read once more",
		setting: boolean(func(c *Config) **bool { return &c.RetryReads }),
	},
	{
		Name: "maxAdaptiveRetries", Kind: "number", Default: "2",
		Doc: "how often an operation is retried at most after a server said that it is " +
			"overloaded",
		setting: number(0, math.MaxInt32, func(c *Config) **int32 { return &c.MaxAdaptiveRetries }),
	},
	{
		Name: "enableOverloadRetargeting", Kind: "boolean", Default: "false",
		Doc:     "such a retry prefers another server to the overloaded one",
		setting: plainBoolean(func(c *Config) *bool { return &c.EnableOverloadRetargeting }),
	},

	// Known, and without effect.
	{
		Name: "serverSelectionTryOnce", Kind: "any", Default: "",
		unsupported: "it is for single-threaded drivers only",
		Doc:         "no effect: it is for single-threaded drivers only",
	},
	{
		Name: "waitQueueSize", Kind: "any", Default: "",
		unsupported: "the wait queue has no limit but time",
		Doc:         "no effect: the wait queue has no limit but time",
	},
	{
		Name: "waitQueueMultiple", Kind: "any", Default: "",
		unsupported: "the wait queue has no limit but time",
		Doc:         "no effect: the wait queue has no limit but time",
	},
	{
		Name: "uuidRepresentation", Kind: "any", Default: "",
		unsupported: "UUIDs are never converted",
		Doc:         "no effect: UUIDs are never converted",
	},
}
