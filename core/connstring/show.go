package connstring

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// masked stands for a secret.
const masked = "***"

// Setting shows one option that a Config has.
type Setting struct {
	Option string
	Value  string // as in a connection string, but not encoded; "***" for a secret
}

// Settings returns the options that the Config has, in the order of Options, with one Setting for
// each value of an option. It may include a default that the string does not give.
func (c *Config) Settings() []Setting {
	var all []Setting
	for i := range options {
		if options[i].show == nil {
			continue
		}
		for _, v := range options[i].show(c) {
			all = append(all, Setting{options[i].Name, v})
		}
	}
	return all
}

// String returns a connection string with the same meaning, in which the user, the password and all
// other secrets are masked.
func (c Config) String() string {
	var b strings.Builder
	b.WriteString("mongodb")
	if c.SRV {
		b.WriteString("+srv")
	}
	b.WriteString("://")
	if c.HasCredential && (c.Username != "" || c.HasPassword) {
		b.WriteString(masked + "@")
	}
	if c.SRV {
		b.WriteString(escapeHost.Replace(c.SRVHost))
	} else {
		for i, h := range c.Hosts {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(escapeHost.Replace(string(h)))
		}
	}
	b.WriteByte('/')
	b.WriteString(escape(c.Database))
	separator := byte('?')
	for _, s := range c.Settings() {
		b.WriteByte(separator)
		separator = '&'
		b.WriteString(s.Option + "=" + escape(s.Value))
	}
	return b.String()
}

// GoString keeps the secrets out of %#v.
func (c Config) GoString() string { return "connstring.Config(" + c.String() + ")" }

// Format keeps the secrets out of every other verb.
func (c Config) Format(f fmt.State, verb rune) { format(f, verb, c) }

// format writes v as String or GoString shows it, whatever the verb.
func format(f fmt.State, verb rune, v interface {
	fmt.Stringer
	fmt.GoStringer
},
) {
	text := v.String()
	if verb == 'v' && f.Flag('#') {
		text = v.GoString()
	}
	_, _ = io.WriteString(f, text)
}

// MarshalText keeps the secrets out of JSON and logs. The result cannot be unmarshaled.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (p Property) String() string { return p.Name + ":" + p.shown() }

// GoString keeps the secret out of %#v.
func (p Property) GoString() string { return "connstring.Property(" + p.String() + ")" }

// Format keeps the secret out of every other verb.
func (p Property) Format(f fmt.State, verb rune) { format(f, verb, p) }

// MarshalText keeps the secret out of JSON and logs.
func (p Property) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// shown masks the values of all properties but those that are known to have no secret.
func (p Property) shown() string {
	if shownProperties[strings.ToUpper(p.Name)] {
		return p.Value
	}
	return masked
}

var shownProperties = map[string]bool{
	"SERVICE_NAME": true, "SERVICE_REALM": true, "SERVICE_HOST": true,
	"CANONICALIZE_HOST_NAME": true,
	"ENVIRONMENT":            true, "TOKEN_RESOURCE": true,
}

func (t TLS) String() string {
	c := Config{TLS: t}
	return settingsText(&c)
}

// GoString keeps the secret out of %#v.
func (t TLS) GoString() string { return "connstring.TLS(" + t.String() + ")" }

// Format keeps the secret out of every other verb.
func (t TLS) Format(f fmt.State, verb rune) { format(f, verb, t) }

// MarshalText keeps the secret out of JSON and logs.
func (t TLS) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

func (p Proxy) String() string {
	c := Config{Proxy: p}
	return settingsText(&c)
}

// GoString keeps the secrets out of %#v.
func (p Proxy) GoString() string { return "connstring.Proxy(" + p.String() + ")" }

// Format keeps the secret out of every other verb.
func (p Proxy) Format(f fmt.State, verb rune) { format(f, verb, p) }

// MarshalText keeps the secret out of JSON and logs.
func (p Proxy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func settingsText(c *Config) string {
	var all []string
	for _, s := range c.Settings() {
		all = append(all, s.Option+"="+s.Value)
	}
	return strings.Join(all, " ")
}

var escapeHost = strings.NewReplacer("%", "%25", ",", "%2C", "/", "%2F", "?", "%3F", " ", "%20")

// escape leaves common punctuation readable.
func escape(s string) string { return unescape.Replace(url.QueryEscape(s)) }

var unescape = strings.NewReplacer("+", "%20", "%3A", ":", "%2C", ",", "%2A", "*", "%24", "$")

func printed[T any](v *T) []string {
	if v == nil {
		return nil
	}
	return []string{fmt.Sprint(*v)}
}

func joined(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return []string{strings.Join(list, ",")}
}

func showText(field func(*Config) *string) func(*Config) []string {
	return func(c *Config) []string {
		if *field(c) == "" {
			return nil
		}
		return []string{*field(c)}
	}
}

func showSecret(field func(*Config) *string) func(*Config) []string {
	return func(c *Config) []string {
		if *field(c) == "" {
			return nil
		}
		return []string{masked}
	}
}

func showDuration(d *time.Duration, unit time.Duration) []string {
	if d == nil {
		return nil
	}
	return []string{strconv.FormatInt(int64(*d/unit), 10)}
}

func showProperties(c *Config) []string {
	var all []string
	for _, p := range c.AuthMechanismProperties {
		all = append(all, p.String())
	}
	return joined(all)
}

// showAuthSource leaves out the default source, unless it overrides that of a TXT record.
func showAuthSource(c *Config) []string {
	if c.AuthSource == "" || c.HasCredential && c.AuthSource == c.defaultSource() &&
		!c.given.authSource {
		return nil
	}
	return []string{c.AuthSource}
}

func showProxyPort(c *Config) []string {
	if c.Proxy.Port == 0 {
		return nil
	}
	return []string{strconv.Itoa(int(c.Proxy.Port))}
}

func showTags(c *Config) []string {
	var sets []string
	for _, set := range c.ReadPreferenceTags {
		var tags []string
		for _, t := range set {
			tags = append(tags, t.Name+":"+t.Value)
		}
		sets = append(sets, strings.Join(tags, ","))
	}
	return sets
}

func showStaleness(c *Config) []string { return showDuration(c.MaxStaleness, time.Second) }

func showNodes(c *Config) []string {
	if n := c.WriteConcern.Nodes; n != nil {
		return printed(n)
	}
	return showText(func(c *Config) *string { return &c.WriteConcern.Tag })(c)
}

func showWTimeout(c *Config) []string { return printed(c.WriteConcern.WTimeoutMS) }
