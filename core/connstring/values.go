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

// booleans has the texts of a boolean, the deprecated ones too.
var booleans = map[string]bool{
	"true": true, "1": true, "yes": true, "y": true, "t": true,
	"false": false, "0": false, "-1": false, "no": false, "n": false, "f": false,
}

var errEmpty = errors.New("must not be empty")

// refusal reports an error about a value that must not be ignored, whatever the row says.
type refusal struct{ error }

func text(field func(*Config) *string) setting {
	return setting{show: showText(field), apply: func(p *parser, value string) error {
		if value == "" {
			return errEmpty
		}
		*field(&p.config) = value
		return nil
	}}
}

func secretText(field func(*Config) *string) setting {
	return setting{apply: text(field).apply, show: showSecret(field)}
}

// maybeEmpty returns the setting of what a proxy is told: empty is as if it were not given, and 255
// bytes are the most.
func maybeEmpty(field func(*Config) *string) setting {
	return setting{show: showSecret(field), apply: func(p *parser, value string) error {
		if len(value) > 255 {
			return errors.New("must have at most 255 bytes")
		}
		*field(&p.config) = value
		return nil
	}}
}

// mechanismName returns the setting of authMechanism. A mechanism that was removed is an error of
// its own.
func mechanismName() setting {
	s := oneOf(func(c *Config) *string { return &c.AuthMechanism }, "SCRAM-SHA-256", "SCRAM-SHA-1",
		"MONGODB-X509", "MONGODB-AWS", "MONGODB-OIDC", "GSSAPI", "PLAIN")
	known := s.apply
	s.apply = func(p *parser, value string) error {
		if value == "MONGODB-CR" {
			return errors.New("MONGODB-CR was removed from MongoDB; SCRAM-SHA-256 replaces it")
		}
		return known(p, value)
	}
	return s
}

func oneOf(field func(*Config) *string, allowed ...string) setting {
	return setting{show: showText(field), apply: func(p *parser, value string) error {
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("must be one of %s", strings.Join(allowed, ", "))
		}
		*field(&p.config) = value
		return nil
	}}
}

func boolean(field func(*Config) **bool) setting {
	return setting{
		apply: func(p *parser, value string) error {
			v, err := p.parseBool(value)
			if err != nil {
				return err
			}
			*field(&p.config) = &v
			return nil
		},
		show: func(c *Config) []string { return printed(*field(c)) },
	}
}

// plainBoolean returns the setting of a boolean whose default is false.
func plainBoolean(field func(*Config) *bool) setting {
	return setting{
		apply: func(p *parser, value string) error {
			v, err := p.parseBool(value)
			if err != nil {
				return err
			}
			*field(&p.config) = v
			return nil
		},
		show: func(c *Config) []string {
			if !*field(c) {
				return nil
			}
			return []string{"true"}
		},
	}
}

func (p *parser) parseBool(value string) (bool, error) {
	v, ok := booleans[value]
	if !ok {
		return false, errors.New("must be true or false")
	}
	if today := strconv.FormatBool(v); value != today {
		p.warn(p.option, "Deprecated boolean value for %q : %q, please update to \"%s=%s\"",
			p.option,
			value, p.option, today)
	}
	return v, nil
}

func parseInt(value string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
	case err != nil:
		return 0, errors.New("must be a whole number")
	case n >= low && n <= high:
		return n, nil
	}
	return 0, fmt.Errorf("must be between %d and %d", low, high)
}

func number(low, high int64, field func(*Config) **int32) setting {
	return setting{
		apply: func(p *parser, value string) error {
			n, err := parseInt(value, low, high)
			if err != nil {
				return err
			}
			*field(&p.config) = new(int32(n))
			return nil
		},
		show: func(c *Config) []string { return printed(*field(c)) },
	}
}

func count(low int64, field func(*Config) **uint64) setting {
	return setting{
		apply: func(p *parser, value string) error {
			n, err := parseInt(value, low, math.MaxInt32)
			if err != nil {
				return err
			}
			*field(&p.config) = new(uint64(n))
			return nil
		},
		show: func(c *Config) []string { return printed(*field(c)) },
	}
}

func millis(low int64, field func(*Config) **time.Duration) setting {
	return setting{
		apply: func(p *parser, value string) error {
			n, err := parseInt(value, low, math.MaxInt32)
			if err != nil {
				return err
			}
			*field(&p.config) = new(time.Duration(n) * time.Millisecond)
			return nil
		},
		show: func(c *Config) []string { return showDuration(*field(c), time.Millisecond) },
	}
}

func appName(p *parser, value string) error {
	if len(value) > 128 {
		return errors.New("must have at most 128 bytes")
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
			return nil, errors.New("must be a list of name:value")
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
	if value == "" {
		return errEmpty
	}
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

// maxStaleness accepts values that are too small, too: selection checks that.
func maxStaleness(p *parser, value string) error {
	n, err := parseInt(value, -1, math.MaxInt32)
	if err != nil {
		return err
	}
	p.config.MaxStaleness = nil
	if n >= 0 {
		p.config.MaxStaleness = new(time.Duration(n) * time.Second)
	}
	return nil
}

// nodes refuses bad numbers, since writes would be weaker without them.
func nodes(p *parser, value string) error {
	if value == "" {
		return errEmpty
	}
	p.config.WriteConcern.Nodes, p.config.WriteConcern.Tag = nil, ""
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (n < 0 || n > math.MaxInt32):
		return refusal{fmt.Errorf("must be between 0 and %d", math.MaxInt32)}
	case err != nil:
		p.config.WriteConcern.Tag = value
	default:
		p.config.WriteConcern.Nodes = new(int32(n))
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

// srvServiceName follows RFC 6335 without its limit of 15 characters: a DNS label has 63, one of
// which is the underscore.
func srvServiceName(p *parser, value string) error {
	letter := func(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
	other := func(r rune) bool { return !letter(r) && (r < '0' || r > '9') && r != '-' }
	switch {
	case value == "" || len(value) > 62:
		return errors.New("must have 1 to 62 characters")
	case strings.ContainsFunc(value, other) || !strings.ContainsFunc(value, letter):
		return errors.New("must consist of letters, digits and hyphens, with at least one letter")
	case strings.HasPrefix(value, "-") || strings.HasSuffix(value, "-") ||
		strings.Contains(value, "--"):
		return errors.New("must not have a hyphen at its beginning, at its end or next to another")
	}
	p.config.SRVServiceName = value
	return nil
}

func proxyHost(p *parser, value string) error {
	if inner, ok := strings.CutPrefix(value, "["); ok {
		value = strings.TrimSuffix(inner, "]") // an IPv6 address as one writes it in URLs
	}
	if value == "" || strings.ContainsAny(value, " /@[]\x00") {
		return errors.New("must be a host name or an IP address")
	}
	p.config.Proxy.Host = value
	return nil
}

func proxyPort(p *parser, value string) error {
	// The specification accepts port 0, on which nothing listens.
	n, err := parseInt(value, 1, math.MaxUint16)
	if err == nil {
		p.config.Proxy.Port = uint16(n)
	}
	return err
}
