package connstring_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/connstring"
)

func TestResolve(t *testing.T) {
	const (
		one = "h1.example.com:27017"
		two = one + ",h2.example.com:27018"
	)
	tests := []struct {
		name, query, hosts, txt string
		want                    func(c *connstring.Config) bool
	}{
		{"no record", "", two, "", func(c *connstring.Config) bool { return c.ReplicaSet == "" && c.UseTLS() && c.SRV }},
		{"both options", "", two, "replicaSet=rs&authSource=db", func(c *connstring.Config) bool { return c.ReplicaSet == "rs" && c.AuthSource == "db" }},
		{"names in any case", "", two, "REPLICASET=rs", func(c *connstring.Config) bool { return c.ReplicaSet == "rs" }},
		{"values are decoded", "", two, "authSource=%24external", func(c *connstring.Config) bool { return c.AuthSource == "$external" }},
		{"the string wins", "replicaSet=own&authSource=mine", two, "replicaSet=rs&authSource=db", func(c *connstring.Config) bool { return c.ReplicaSet == "own" && c.AuthSource == "mine" }},
		{"an explicit default wins", "authSource=admin", two, "authSource=db", func(c *connstring.Config) bool { return c.AuthSource == "admin" }},
		{"loadBalanced", "", one, "loadBalanced=true", func(c *connstring.Config) bool { return c.LoadBalanced }},
		{"loadBalanced=false wins", "loadBalanced=false", two, "loadBalanced=true", func(c *connstring.Config) bool { return !c.LoadBalanced }},
		{"what is ignored in the string does not win", "loadBalanced=maybe&replicaSet=", one, "loadBalanced=true", func(c *connstring.Config) bool { return c.LoadBalanced }},
		{"a bad value is ignored", "", two, "loadBalanced=maybe", func(c *connstring.Config) bool { return !c.LoadBalanced && len(c.Warnings) == 1 }},
		{"a repeated option", "", two, "replicaSet=a&replicaSet=b", func(c *connstring.Config) bool { return c.ReplicaSet == "b" && len(c.Warnings) == 1 }},
		{"tls=false", "tls=false", two, "", func(c *connstring.Config) bool { return !c.UseTLS() }},
		{"srvMaxHosts=0 excludes nothing", "srvMaxHosts=0", two, "replicaSet=rs", func(c *connstring.Config) bool { return c.ReplicaSet == "rs" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := parse(t, "mongodb+srv://example.com/?"+tt.query)
			got, err := c.Resolve(hosts(tt.hosts), tt.txt)
			if err != nil || !slices.Equal(got.Hosts, hosts(tt.hosts)) || !tt.want(&got) {
				type plain connstring.Config
				t.Errorf("Resolve(%q) = %+v, %v", tt.txt, plain(got), err)
			}
			if c.Hosts != nil {
				t.Error("Resolve changed its receiver")
			}
		})
	}
}

// The source of the user: what the string says, else the TXT record, else the database of the
// string's path.
func TestResolveCompletesTheCredential(t *testing.T) {
	tests := []struct{ uri, txt, want string }{
		{"mongodb+srv://u:p@example.com/db", "", "db"},
		{"mongodb+srv://u:p@example.com/db", "authSource=txt", "txt"},
		{"mongodb+srv://u:p@example.com/", "authSource=txt", "txt"},
		{"mongodb+srv://u:p@example.com/", "replicaSet=rs", "admin"},
		{"mongodb+srv://u:p@example.com/db?authSource=uri", "authSource=txt", "uri"},
		{"mongodb+srv://u@example.com/?authMechanism=MONGODB-X509&authSource=%24external", "authSource=admin", "$external"},
	}
	for _, tt := range tests {
		got, err := parse(t, tt.uri).Resolve(hosts("h.example.com:1"), tt.txt)
		if err != nil || got.AuthSource != tt.want {
			t.Errorf("%s with %q: source %q, %v, want %q", tt.uri, tt.txt, got.AuthSource, err,
				tt.want)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	const two = "h1.example.com:27017,h2.example.com:27018"
	tests := []struct{ query, hosts, txt, want string }{
		{"", two, "ssl=false", "is not authSource, replicaSet or loadBalanced"},
		{"tls=true", two, "tls=true", "is not authSource, replicaSet or loadBalanced"},
		{"", two, "socketTimeoutMS=500", "is not authSource, replicaSet or loadBalanced"},
		{"", two, "authSource", "no value"},
		{"", two, "authSource=", "authSource"},
		{"", two, "authSource=%", "URL encoded"},
		{"srvMaxHosts=1", two, "replicaSet=rs", "srvMaxHosts"},
		{"srvMaxHosts=1", "h1.example.com:1", "loadBalanced=true", "srvMaxHosts"},
		{"", two, "loadBalanced=true", "exactly one host"},
		{"loadBalanced=true", two, "", "exactly one host"},
		{"replicaSet=rs", "h1.example.com:1", "loadBalanced=true", "replicaSet"},
		{"authMechanism=MONGODB-X509", two, "authSource=admin", "$external"},
	}
	for _, tt := range tests {
		_, err := parse(t, "mongodb+srv://example.com/?"+tt.query).Resolve(hosts(tt.hosts), tt.txt)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("?%s with %q: %v, want an error with %q", tt.query, tt.txt, err, tt.want)
		}
	}
	if _, err := parse(t, "mongodb://a").Resolve(hosts("b:1"), ""); err == nil {
		t.Error("Resolve of a mongodb:// string: no error")
	}
}

func TestSRVServiceName(t *testing.T) {
	for name, ok := range map[string]bool{
		"mongodb": true, "custom-name1": true, "A": true, strings.Repeat("a", 62): true,
		strings.Repeat("a", 63): false, "": false, "a_b": false, "a.b": false, "-a": false, "a-": false, "a--b": false, "12": false, "ä": false,
	} {
		c, err := connstring.Parse("mongodb+srv://example.com/?srvServiceName=" + name)
		if (err == nil) != ok || ok && c.SRVServiceName != name {
			t.Errorf("srvServiceName=%s: %q, %v, want it accepted: %v", name, c.SRVServiceName, err,
				ok)
		}
	}
}

func parse(t *testing.T, uri string) connstring.Config {
	t.Helper()
	c, err := connstring.Parse(uri)
	if err != nil {
		t.Fatalf("Parse(%q) = %v", uri, err)
	}
	return c
}

func hosts(list string) []address.Address {
	var all []address.Address
	for h := range strings.SplitSeq(list, ",") {
		all = append(all, address.Address(h))
	}
	return all
}
