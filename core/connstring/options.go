package connstring

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Option is one row of the table of options.
type Option struct {
	name string
	doc  string

	apply       func(p *parser, value string) error
	strict      bool       // a value that does not do is an error, not a warning
	secret      bool       // the value stands in no message
	repeat      repetition // what a second appearance means
	replacedBy  string     // the name that is used today
	unsupported string     // why it is known and ignored
}

type repetition uint8

const (
	lastCounts repetition = iota // with a warning
	allCount                     // in their order
	mustAgree                    // no harm unless they differ, which check finds
	refused
)

// Name is the option's name as the specification spells it. Case does not matter in a connection string.
func (o Option) Name() string { return o.name }

// Doc is one line for users: the values, the default, and what it does.
func (o Option) Doc() string { return o.doc }

// Options are all options, in the order of the documentation. Those that are known but have no effect are among them.
func Options() []Option { return slices.Clone(options) }

var rows = func() map[string]*Option {
	m := make(map[string]*Option, len(options))
	for i := range options {
		m[lower(options[i].name)] = &options[i]
	}
	return m
}()

var options = []Option{
	{name: "appName", doc: "string, up to 128 bytes: the application's name in the server's logs", apply: appName},
	{name: "authMechanism", doc: "name: how to authenticate; negotiated by default", strict: true, apply: oneOf(func(c *Config) *string { return &c.AuthMechanism },
		"MONGODB-CR", "MONGODB-X509", "GSSAPI", "PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-AWS", "MONGODB-OIDC")},
	{name: "authMechanismProperties", doc: "name:value,...: properties of the mechanism; no value can contain a comma", secret: true, apply: properties},
	{name: "authSource", doc: "database: where the user is looked up", strict: true, apply: text(func(c *Config) *string { return &c.AuthSource })},
	{name: "gssapiServiceName", doc: "string: replaced by authMechanismProperties=SERVICE_NAME:...", replacedBy: "authMechanismProperties", apply: gssapiServiceName},

	{name: "replicaSet", doc: "string: the name of the replica set", apply: text(func(c *Config) *string { return &c.ReplicaSet })},
	{name: "directConnection", doc: "boolean (false): talk to the one host only, whatever it is", apply: boolean(func(c *Config) **bool { return &c.DirectConnection })},
	{name: "loadBalanced", doc: "boolean (false): the host is a load balancer", apply: plainBoolean(func(c *Config) *bool { return &c.LoadBalanced })},
	{name: "srvMaxHosts", doc: "number (0): how many hosts of the SRV records to use; 0: all", apply: number(0, math.MaxInt32, func(c *Config) **int32 { return &c.SRVMaxHosts })},
	{name: "srvServiceName", doc: "string (mongodb): the service of the SRV records", strict: true, apply: srvServiceName},

	{name: "tls", doc: "boolean (false; true for mongodb+srv): encrypt connections; no other tls option implies it", repeat: mustAgree, apply: boolean(func(c *Config) **bool { return &c.TLS.Enabled })},
	{name: "ssl", doc: "boolean: another name of tls", repeat: mustAgree, apply: boolean(func(c *Config) **bool { return &c.TLS.Enabled })},
	{name: "tlsCAFile", doc: "path: the certificates to trust, PEM", apply: text(func(c *Config) *string { return &c.TLS.CAFile })},
	{name: "tlsCertificateKeyFile", doc: "path: our certificate and key, PEM", apply: text(func(c *Config) *string { return &c.TLS.CertificateKeyFile })},
	{name: "tlsCertificateKeyFilePassword", doc: "string: decrypts the key", secret: true, apply: text(func(c *Config) *string { return &c.TLS.CertificateKeyFilePassword })},
	{name: "tlsInsecure", doc: "boolean (false): verify neither the server's certificate nor its name", apply: plainBoolean(func(c *Config) *bool { return &c.TLS.Insecure })},
	{name: "tlsAllowInvalidCertificates", doc: "boolean (false): do not verify the server's certificate, only its name", apply: plainBoolean(func(c *Config) *bool { return &c.TLS.AllowInvalidCertificates })},
	{name: "tlsAllowInvalidHostnames", doc: "boolean (false): do not verify the server's name, only its certificate", apply: plainBoolean(func(c *Config) *bool { return &c.TLS.AllowInvalidHostnames })},
	{name: "tlsDisableOCSPEndpointCheck", doc: "boolean (false): do not ask OCSP responders", apply: plainBoolean(func(c *Config) *bool { return &c.TLS.DisableOCSPEndpointCheck })},
	{name: "tlsDisableCertificateRevocationCheck", doc: "boolean (false): do not look for revoked certificates", apply: plainBoolean(func(c *Config) *bool { return &c.TLS.DisableCertificateRevocationCheck })},

	{name: "maxPoolSize", doc: "number (100): connections to one server at most; 0: no maximum", apply: count(0, func(c *Config) **uint64 { return &c.MaxPoolSize })},
	{name: "minPoolSize", doc: "number (0): connections to one server at least", apply: count(0, func(c *Config) **uint64 { return &c.MinPoolSize })},
	{name: "maxConnecting", doc: "number (2): connections to one server that are established at once", apply: count(1, func(c *Config) **uint64 { return &c.MaxConnecting })},
	{name: "maxIdleTimeMS", doc: "milliseconds (0): how long a connection may be unused; 0: for ever", apply: millis(0, func(c *Config) **time.Duration { return &c.MaxIdleTime })},
	{name: "waitQueueTimeoutMS", doc: "milliseconds (0): how long to wait for a connection; 0: as long as the request has; deprecated", apply: millis(0, func(c *Config) **time.Duration { return &c.WaitQueueTimeout })},

	{name: "connectTimeoutMS", doc: "milliseconds (10000): how long establishing a connection may take; 0: no limit", apply: millis(0, func(c *Config) **time.Duration { return &c.ConnectTimeout })},
	{name: "socketTimeoutMS", doc: "milliseconds (0): how long a send or a receive may take; 0: no limit; deprecated", apply: millis(0, func(c *Config) **time.Duration { return &c.SocketTimeout })},
	{name: "serverSelectionTimeoutMS", doc: "milliseconds (30000): how long to wait for a suitable server; 0: do not wait", apply: millis(0, func(c *Config) **time.Duration { return &c.ServerSelectionTimeout })},
	{name: "heartbeatFrequencyMS", doc: "milliseconds (10000), at least 500: how often servers are checked", apply: millis(500, func(c *Config) **time.Duration { return &c.HeartbeatInterval })},
	{name: "localThresholdMS", doc: "milliseconds (15): how much slower than the fastest server one may be", apply: millis(0, func(c *Config) **time.Duration { return &c.LocalThreshold })},
	{name: "timeoutMS", doc: "milliseconds: how long an operation may take; 0: no limit", apply: millis(0, func(c *Config) **time.Duration { return &c.Timeout })},
	{name: "serverMonitoringMode", doc: "stream, poll or auto (auto): how servers are watched", apply: oneOf(func(c *Config) *string { return &c.ServerMonitoringMode }, "stream", "poll", "auto")},

	{name: "readPreference", doc: "primary, primaryPreferred, secondary, secondaryPreferred or nearest (primary)", apply: oneOf(func(c *Config) *string { return &c.ReadPreference },
		"primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest")},
	{name: "readPreferenceTags", doc: "name:value,...: tags of the servers to read from; repeat it for alternatives", repeat: allCount, apply: readPreferenceTags},
	{name: "maxStalenessSeconds", doc: "seconds, at least 90 (-1: any): how far behind a secondary may be", apply: maxStaleness},
	{name: "readConcernLevel", doc: "string: the read concern", apply: text(func(c *Config) *string { return &c.ReadConcernLevel })},
	{name: "w", doc: "number or string: how many members acknowledge a write", apply: nodes},
	{name: "journal", doc: "boolean: acknowledge writes after they are in the journal", apply: boolean(func(c *Config) **bool { return &c.WriteConcern.Journal })},
	{name: "wTimeoutMS", doc: "milliseconds (0): how long to wait for acknowledgement; 0: no limit; deprecated", apply: wTimeout},
	{name: "wtimeout", doc: "milliseconds: replaced by wTimeoutMS", replacedBy: "wTimeoutMS", apply: wTimeout},
	{name: "retryWrites", doc: "boolean (true): try a write again once", apply: boolean(func(c *Config) **bool { return &c.RetryWrites })},
	{name: "retryReads", doc: "boolean (true): try a read again once", apply: boolean(func(c *Config) **bool { return &c.RetryReads })},

	{name: "compressors", doc: "snappy,zlib,zstd: compression, in the order of preference", apply: compressors},
	{name: "zlibCompressionLevel", doc: "-1 to 9 (-1): zlib's level", apply: number(-1, 9, func(c *Config) **int32 { return &c.ZlibCompressionLevel })},

	{name: "proxyHost", doc: "host: a SOCKS5 proxy", repeat: refused, strict: true, apply: text(func(c *Config) *string { return &c.Proxy.Host })},
	{name: "proxyPort", doc: "port (1080) of the proxy", repeat: refused, apply: proxyPort},
	{name: "proxyUsername", doc: "string: user at the proxy", repeat: refused, secret: true, apply: maybeEmpty(func(c *Config) *string { return &c.Proxy.Username })},
	{name: "proxyPassword", doc: "string: password at the proxy", repeat: refused, secret: true, apply: maybeEmpty(func(c *Config) *string { return &c.Proxy.Password })},

	{name: "serverSelectionTryOnce", doc: "no effect", unsupported: "it is for single-threaded drivers only"},
	{name: "waitQueueSize", doc: "no effect", unsupported: "the wait queue has no limit but time"},
	{name: "waitQueueMultiple", doc: "no effect", unsupported: "the wait queue has no limit but time"},
	{name: "uuidRepresentation", doc: "no effect", unsupported: "UUIDs are never converted"},
}

// booleans are the texts of a boolean, the deprecated ones too.
var booleans = map[string]bool{
	"true": true, "1": true, "yes": true, "y": true, "t": true,
	"false": false, "0": false, "-1": false, "no": false, "n": false, "f": false,
}

var errEmpty = errors.New("it is empty")

func text(field func(*Config) *string) func(*parser, string) error {
	return func(p *parser, value string) error {
		if value == "" {
			return errEmpty
		}
		*field(&p.config) = value
		return nil
	}
}

func maybeEmpty(field func(*Config) *string) func(*parser, string) error {
	return func(p *parser, value string) error {
		*field(&p.config) = value
		return nil
	}
}

func oneOf(field func(*Config) *string, allowed ...string) func(*parser, string) error {
	return func(p *parser, value string) error {
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("it is none of %s", strings.Join(allowed, ", "))
		}
		*field(&p.config) = value
		return nil
	}
}

func boolean(field func(*Config) **bool) func(*parser, string) error {
	return func(p *parser, value string) error {
		v, err := p.parseBool(value)
		if err != nil {
			return err
		}
		*field(&p.config) = &v
		return nil
	}
}

func plainBoolean(field func(*Config) *bool) func(*parser, string) error {
	return func(p *parser, value string) error {
		v, err := p.parseBool(value)
		if err != nil {
			return err
		}
		*field(&p.config) = v
		return nil
	}
}

func (p *parser) parseBool(value string) (bool, error) {
	v, ok := booleans[value]
	if !ok {
		return false, errors.New("it is neither true nor false")
	}
	if today := strconv.FormatBool(v); value != today {
		p.warn(p.option, "Deprecated boolean value for %q : %q, please update to \"%s=%s\"", p.option, value, p.option, today)
	}
	return v, nil
}

func parseInt(value string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
	case err != nil:
		return 0, errors.New("it is not a whole number")
	case n >= low && n <= high:
		return n, nil
	}
	return 0, fmt.Errorf("it is not between %d and %d", low, high)
}

func number(low, high int64, field func(*Config) **int32) func(*parser, string) error {
	return func(p *parser, value string) error {
		n, err := parseInt(value, low, high)
		if err != nil {
			return err
		}
		v := int32(n)
		*field(&p.config) = &v
		return nil
	}
}

func count(low int64, field func(*Config) **uint64) func(*parser, string) error {
	return func(p *parser, value string) error {
		n, err := parseInt(value, low, math.MaxInt32)
		if err != nil {
			return err
		}
		v := uint64(n)
		*field(&p.config) = &v
		return nil
	}
}

func millis(low int64, field func(*Config) **time.Duration) func(*parser, string) error {
	return func(p *parser, value string) error {
		n, err := parseInt(value, low, math.MaxInt32)
		if err != nil {
			return err
		}
		v := time.Duration(n) * time.Millisecond
		*field(&p.config) = &v
		return nil
	}
}

func appName(p *parser, value string) error {
	if len(value) > 128 {
		return errors.New("it is longer than 128 bytes")
	}
	p.config.AppName = value
	return nil
}

// pairs splits "a:b,c:d". Values may contain colons.
func pairs(value string) ([]Tag, error) {
	var tags []Tag
	for pair := range strings.SplitSeq(value, ",") {
		name, v, ok := strings.Cut(pair, ":")
		if !ok || name == "" {
			return nil, errors.New("it is not a list of name:value")
		}
		tags = append(tags, Tag{name, v})
	}
	return tags, nil
}

func properties(p *parser, value string) error {
	tags, err := pairs(value)
	if err != nil {
		return err
	}
	p.config.AuthMechanismProperties = nil
	for _, t := range tags {
		p.config.AuthMechanismProperties = append(p.config.AuthMechanismProperties, Property(t))
	}
	return nil
}

func gssapiServiceName(p *parser, value string) error {
	p.config.AuthMechanismProperties = []Property{{"SERVICE_NAME", value}}
	return nil
}

func readPreferenceTags(p *parser, value string) error {
	if value == "" {
		p.config.ReadPreferenceTags = append(p.config.ReadPreferenceTags, TagSet{})
		return nil
	}
	tags, err := pairs(value)
	if err != nil {
		return err
	}
	p.config.ReadPreferenceTags = append(p.config.ReadPreferenceTags, tags)
	return nil
}

func maxStaleness(p *parser, value string) error {
	n, err := parseInt(value, -1, math.MaxInt32)
	switch {
	case err != nil:
		return err
	case n == -1:
		p.config.MaxStaleness = nil
		return nil
	case n < 90:
		return errors.New("it is less than 90 and not -1")
	}
	v := time.Duration(n) * time.Second
	p.config.MaxStaleness = &v
	return nil
}

func nodes(p *parser, value string) error {
	if value == "" {
		return errEmpty
	}
	p.config.WriteConcern.Nodes, p.config.WriteConcern.Tag = nil, ""
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (n < 0 || n > math.MaxInt32):
		return fmt.Errorf("it is not between 0 and %d", math.MaxInt32)
	case err != nil:
		p.config.WriteConcern.Tag = value
	default:
		v := int32(n)
		p.config.WriteConcern.Nodes = &v
	}
	return nil
}

func wTimeout(p *parser, value string) error {
	n, err := parseInt(value, 0, math.MaxInt64)
	if err == nil {
		p.config.WriteConcern.WTimeoutMS = &n
	}
	return err
}

func compressors(p *parser, value string) error {
	p.config.Compressors = nil
	for name := range strings.SplitSeq(value, ",") {
		switch name {
		case "snappy", "zlib", "zstd":
			if !slices.Contains(p.config.Compressors, name) {
				p.config.Compressors = append(p.config.Compressors, name)
			}
		default:
			p.warn(p.option, "Unsupported compressor: '%s'", name)
		}
	}
	return nil
}

// srvServiceName follows RFC 6335, but for its limit of 15 characters; one of DNS's 63 is the underscore.
func srvServiceName(p *parser, value string) error {
	letter := func(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
	other := func(r rune) bool { return !letter(r) && (r < '0' || r > '9') && r != '-' }
	switch {
	case value == "" || len(value) > 62:
		return errors.New("it is empty or longer than 62 characters")
	case strings.ContainsFunc(value, other) || !strings.ContainsFunc(value, letter):
		return errors.New("it is not of letters, digits and hyphens with at least one letter")
	case strings.HasPrefix(value, "-") || strings.HasSuffix(value, "-") || strings.Contains(value, "--"):
		return errors.New("a hyphen does not stand between letters or digits")
	}
	p.config.SRVServiceName = value
	return nil
}

func proxyPort(p *parser, value string) error {
	n, err := parseInt(value, 0, math.MaxUint16)
	if err == nil {
		p.config.Proxy.Port = uint16(n)
	}
	return err
}
