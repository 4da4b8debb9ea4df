// Package uridiff reads connection strings with core/connstring and with the official driver, and
// tells where the two disagree. Known differences stand in one table, with the reason.
package uridiff

import (
	"fmt"
	"slices"
	"strings"
	"time"

	official "go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/connstring"
)

// Difference describes one thing that the two read differently.
type Difference struct {
	What         string // "accepted", or the name of a field
	Ours, Theirs string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s, the official driver: %s", d.What, d.Ours, d.Theirs)
}

// Compare reads a mongodb:// string with both. Of mongodb+srv it knows nothing: the official
// driver would ask DNS.
func Compare(uri string) []Difference {
	ours, ourErr := connstring.Parse(uri)
	if ourErr == nil {
		ourErr = ours.CheckAuth(connstring.InCode{})
	}
	theirs, theirErr := official.ParseAndValidate(uri)
	if (ourErr == nil) != (theirErr == nil) {
		return []Difference{{"accepted", fmt.Sprint(ourErr), fmt.Sprint(theirErr)}}
	}
	if ourErr != nil {
		return nil
	}
	var all []Difference
	for _, f := range fields {
		if a, b := f.ours(&ours), f.theirs(theirs); a != b {
			all = append(all, Difference{f.name, a, b})
		}
	}
	return all
}

type field struct {
	name   string
	ours   func(*connstring.Config) string
	theirs func(*official.ConnString) string
}

// fields are what both have, as texts; "" is what is not given.
var fields = []field{
	{"hosts", func(c *connstring.Config) string { return fmt.Sprint(c.Hosts) }, theirHosts},
	{
		"username", func(c *connstring.Config) string { return c.Username },
		func(c *official.ConnString) string { return c.Username },
	},
	{
		"password", func(c *connstring.Config) string { return c.Password },
		func(c *official.ConnString) string { return c.Password },
	},
	{
		"database", func(c *connstring.Config) string { return c.Database },
		func(c *official.ConnString) string { return c.Database },
	},
	{
		"authMechanism", func(c *connstring.Config) string { return c.AuthMechanism },
		func(c *official.ConnString) string { return c.AuthMechanism },
	},
	{
		"authSource", func(c *connstring.Config) string {
			return authSource(c.HasCredential, c.AuthSource)
		},
		func(c *official.ConnString) string {
			return authSource(c.Username != "" || c.AuthMechanism != "", c.AuthSource)
		},
	},
	{
		"appName", func(c *connstring.Config) string { return c.AppName },
		func(c *official.ConnString) string { return c.AppName },
	},
	{
		"replicaSet", func(c *connstring.Config) string { return c.ReplicaSet },
		func(c *official.ConnString) string { return c.ReplicaSet },
	},
	{
		"directConnection", func(c *connstring.Config) string { return given(c.DirectConnection) },
		func(c *official.ConnString) string {
			return set(c.DirectConnectionSet,
				c.DirectConnection)
		},
	},
	{
		"tls", func(c *connstring.Config) string { return given(c.TLS.Enabled) },
		func(c *official.ConnString) string { return set(c.SSLSet, c.SSL) },
	},
	{
		"maxPoolSize", func(c *connstring.Config) string { return given(c.MaxPoolSize) },
		func(c *official.ConnString) string { return set(c.MaxPoolSizeSet, c.MaxPoolSize) },
	},
	{
		"minPoolSize", func(c *connstring.Config) string { return given(c.MinPoolSize) },
		func(c *official.ConnString) string { return set(c.MinPoolSizeSet, c.MinPoolSize) },
	},
	{
		"connectTimeoutMS", func(c *connstring.Config) string { return given(c.ConnectTimeout) },
		func(c *official.ConnString) string { return set(c.ConnectTimeoutSet, c.ConnectTimeout) },
	},
	{
		"heartbeatFrequencyMS", func(c *connstring.Config) string {
			return given(c.HeartbeatInterval)
		},
		func(c *official.ConnString) string {
			return set(c.HeartbeatIntervalSet,
				c.HeartbeatInterval)
		},
	},
	{
		"readConcernLevel", func(c *connstring.Config) string { return c.ReadConcernLevel },
		func(c *official.ConnString) string { return c.ReadConcernLevel },
	},
	{
		"readPreference", func(c *connstring.Config) string { return c.ReadPreference },
		func(c *official.ConnString) string { return c.ReadPreference },
	},
	{"readPreferenceTags", ourTags, theirTags},
	{
		"maxStalenessSeconds", func(c *connstring.Config) string { return given(c.MaxStaleness) },
		func(c *official.ConnString) string {
			return set(c.MaxStalenessSet && c.MaxStaleness >= 0, c.MaxStaleness)
		},
	},
	{
		"journal", func(c *connstring.Config) string { return given(c.WriteConcern.Journal) },
		func(c *official.ConnString) string { return set(c.JSet, c.J) },
	},
	{
		"retryWrites", func(c *connstring.Config) string { return given(c.RetryWrites) },
		func(c *official.ConnString) string { return set(c.RetryWritesSet, c.RetryWrites) },
	},
}

func authSource(authenticates bool, source string) string {
	if !authenticates {
		return ""
	}
	return source
}

func given[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func set[T bool | uint64 | time.Duration](isSet bool, v T) string {
	if !isSet {
		return ""
	}
	return fmt.Sprint(v)
}

// theirHosts normalises the hosts, which the official driver does only later.
func theirHosts(c *official.ConnString) string {
	var hosts []address.Address
	for _, h := range c.Hosts {
		a, err := address.Parse(h)
		if err != nil {
			return err.Error()
		}
		hosts = append(hosts, a)
	}
	return fmt.Sprint(hosts)
}

func ourTags(c *connstring.Config) string {
	var sets []string
	for _, s := range c.ReadPreferenceTags {
		byName := map[string]string{}
		for _, t := range s {
			byName[t.Name] = t.Value
		}
		sets = append(sets, fmt.Sprint(byName))
	}
	return strings.Join(sets, " ")
}

func theirTags(c *official.ConnString) string {
	var sets []string
	for _, s := range c.ReadPreferenceTagSets {
		sets = append(sets, fmt.Sprint(s))
	}
	return strings.Join(sets, " ")
}

// Unknown returns the differences that are not in the table.
func Unknown(uri string) []Difference {
	return slices.DeleteFunc(Compare(uri), func(d Difference) bool { return reason(uri, d) != "" })
}
