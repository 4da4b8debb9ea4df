package config_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestMongoOptions(t *testing.T) {
	const inFile = `
uri: mongodb://db.example/?maxPoolSize=1
mongodb:
  options:
    maxpoolsize: 7
    minPoolSize:
    tls: true
    appName: "a&b=c"
    readPreference: nearest
    readPreferenceTags: ["dc:ny", ""]
    proxyHost: proxy
    proxyUsername: u
    proxyPassword: hunter2
`
	const merged = "mongodb://db.example:27017/?appName=a%26b%3Dc&tls=true&maxPoolSize=1&proxyHost=proxy&proxyPort=1080" +
		"&proxyUsername=***&proxyPassword=***&readPreference=nearest&readPreferenceTags=dc:ny&readPreferenceTags="
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"file", []string{"--config", write(t, "c.yaml", inFile)}, merged},
		{"flag", []string{"--uri=mongodb://db.example", "--mongodb-options=tls=true\nappName=x\n"}, "mongodb://db.example:27017/?appName=x&tls=true"},
		{"file of their own", []string{"--uri=mongodb://db.example", "--mongodb-options-file", write(t, "o", "W=2\r\n\n")}, "mongodb://db.example:27017/?w=2"},
		{
			"the flag's replace the file's",
			[]string{"--config", write(t, "d.yaml", inFile), "--mongodb-options=appName=x"},
			"mongodb://db.example:27017/?appName=x&maxPoolSize=1",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, err := load(t, row.args, nil)
			if err != nil {
				t.Fatalf("Load = %v", err)
			}
			if got := c.MongoDB.String(); got != row.want {
				t.Errorf("Load: %s\nwant %s", got, row.want)
			}
			// The output is a valid configuration file, except for the secrets.
			var b strings.Builder
			if err := c.WriteEffective(&b); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String(), "hunter2") ||
				strings.Contains(fmt.Sprintf("%+v", c.MongoDB), "hunter2") {
				t.Errorf("a secret is shown: %s", b.String())
			}
			again, err := load(t, []string{"--config", write(t, "again.yaml", b.String()), "--uri=mongodb://x"}, nil)
			if err != nil || !strings.Contains(b.String(), "options:") ||
				again.MongoDB.AppName != c.MongoDB.AppName {
				t.Errorf("Load of %s: %v, %v", b.String(), again.MongoDB, err)
			}
		})
	}
}

func TestMongoOptionsRefused(t *testing.T) {
	for name, options := range map[string]string{
		"unknown":     "{maxPoolSise: 3}",
		"not a value": "{w: {a: b}}",
		"conflict":    "{tlsInsecure: true, tlsAllowInvalidHostnames: false}",
		"no value":    "hunter2",
		"strict":      "{w: -1}",
	} {
		_, err := load(t, []string{"--config", write(t, "c.yaml", "uri: mongodb://a\nmongodb:\n  options: "+options+"\n")}, nil)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: Load = %v, want an error without a secret", name, err)
		}
	}
}
