package uridiff

import (
	"regexp"

	"github.com/mooringdb/mooring/core/connstring"
)

// known are the differences that are meant, with the reason why Mooring does what it does. A row
// applies to what it says, where both texts match.
var known = []struct {
	what              string         // "": anything
	uri, ours, theirs *regexp.Regexp // nil: anything
	warned            bool           // Mooring warns of something
	reason            string
}{
	{
		uri: text(`\+`),
		reason: "the official driver takes a plus for a space; Connection String asks for %20, " +
			"since a plus may be meant",
	},
	{uri: text(`^mongodb://[^/]*\?`), reason: "the slash before the options may be missing since 2023-08-02"},

	// The official driver refuses.
	{
		what: "accepted", ours: none,
		theirs: text(`invalid value for|invalid '.*' value|invalid syntax|value out of range`),
		warned: true,
		reason: "a value that an option cannot have is ignored with a warning (Connection " +
			"String, \"Warnings\")",
	},
	{
		what: "accepted", ours: none, theirs: text(`invalid option|invalid authMechanism property`),
		warned: true,
		reason: "what is not understood is ignored with a warning, an option without a name too",
	},
	{
		what: "accepted", ours: none, theirs: text(`unescaped slash in username`),
		uri: text(`\?.*@`), reason: "there may be an @ in the options",
	},
	{
		what: "accepted", ours: none, theirs: text(`invalid host`), uri: text(`(?i)%2F.*\.sock`),
		reason: "the path of a socket may have colons",
	},
	{
		what: "accepted", ours: none, theirs: text(`"maxStalenessSeconds": "-1"`),
		reason: "-1 is \"no limit\", the default",
	},
	{
		what: "accepted", ours: none, theirs: text(`password required for`),
		reason: "an empty password is one: Connection String tells \"user:@\" from \"user@\"",
	},

	// The official driver accepts.
	{
		what: "accepted", ours: text(`proxy(Host|Port|Username|Password)`), theirs: none,
		reason: "the official driver has no SOCKS5 options",
	},
	{
		what: "accepted", ours: text(`options tls\w+ and tls\w+ cannot be`), theirs: none,
		reason: "URI Options, \"Conflicting TLS options\"",
	},
	{
		what: "accepted", ours: text(`options tls and ssl have different values`), theirs: none,
		reason: "URI Options, \"Conflicting TLS options\"",
	},
	{
		what: "accepted", ours: text(`user name and password must be URL encoded`), theirs: none,
		reason: "[ ] and # have to be encoded in a user name and a password",
	},
	{
		what: "accepted", ours: text(`not correctly URL encoded`), uri: invalid, theirs: none,
		reason: "all is UTF-8 (URI Options)",
	},
	{
		what: "accepted", ours: text(`database name must not have a`), theirs: none,
		reason: "the database may have none of / \\ space \" $ in it, encoded or not",
	},
	{
		what: "accepted", ours: text(`^connection string: (address|host|unsupported host|no host)`),
		theirs: none,
		reason: "the official driver looks at hosts when it connects, and drops empty ones",
	},
	{
		what: "accepted", ours: text(`readPreference primary`), theirs: none,
		reason: "the official driver says so when it makes its client",
	},
	{
		what: "accepted", ours: text(`is more than maxPoolSize`), theirs: none,
		reason: "the official driver says so when it makes its client",
	},
	{
		what: "accepted", ours: text(`option w: must be between`), theirs: none,
		reason: "integers have 32 bits",
	},
	{
		what: "accepted", ours: text(`option authMechanism: must be one of`), theirs: none,
		reason: "the official driver takes an empty one for none",
	},
	{
		what: "accepted", ours: text(`authentication needs a password`), theirs: none,
		reason: "a user without a password cannot log in by SCRAM",
	},
	{
		what: "accepted", ours: text(`MONGODB-X509 takes no password`), theirs: none,
		reason: "the official driver does not mind an empty one",
	},
	{
		what: "accepted", ours: text(`MONGODB-AWS takes neither a user name`), theirs: none,
		reason: "since 2026 credentials come from the environment only (AU-101)",
	},
	{
		what: "accepted", ours: text(`option authMechanismProperties`), theirs: none,
		reason: "the official driver looks at them when it authenticates",
	},

	// Both accept, and read something else.
	{
		what: "readPreference", warned: true,
		reason: "the official driver looks at the mode when it makes its client",
	},
	{what: "directConnection", warned: true, reason: "a boolean is spelled true or false"},
	{what: "tls", warned: true, reason: "a boolean is spelled true or false"},
	{what: "journal", warned: true, reason: "a boolean is spelled true or false"},
	{what: "retryWrites", warned: true, reason: "a boolean is spelled true or false"},
	{what: "heartbeatFrequencyMS", warned: true, reason: "at least 500, and 32 bits"},
	{what: "connectTimeoutMS", warned: true, reason: "integers have 32 bits"},
	{what: "maxStalenessSeconds", warned: true, reason: "integers have 32 bits"},
	{what: "maxPoolSize", warned: true, reason: "integers have 32 bits"},
	{what: "minPoolSize", warned: true, reason: "integers have 32 bits"},
}

// invalid finds bytes that may be invalid UTF-8, encoded or not.
var invalid = text(`(?i)%[89a-f]|[^\x00-\x7f]`)

var none = text(`^<nil>$`)

func text(pattern string) *regexp.Regexp { return regexp.MustCompile(pattern) }

// reason returns the reason that a difference is intended, or "".
func reason(uri string, d Difference) string {
	for _, k := range known {
		if k.what != "" && k.what != d.What || !matches(k.uri, uri) || !matches(k.ours, d.Ours) ||
			!matches(k.theirs, d.Theirs) {
			continue
		}
		if k.warned {
			c, err := connstring.Parse(uri)
			if err != nil || len(c.Warnings) == 0 {
				continue
			}
		}
		return k.reason
	}
	return ""
}

func matches(r *regexp.Regexp, s string) bool { return r == nil || r.MatchString(s) }
