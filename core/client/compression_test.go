package client_test

import (
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The compressors of the connection string are offered in every first hello, in their order, and
// an unknown one is a warning and is not.
func TestCompressorsAreOffered(t *testing.T) {
	for query, want := range map[string]string{
		"": "", "compressors=zstd,snoopy,snappy&zlibCompressionLevel=3": "zstd snappy",
	} {
		cfg, err := connstring.Parse("mongodb://fakemongo/?directConnection=true&" + query)
		if err != nil {
			t.Fatal(err)
		}
		runWith(t, nil, cfg, client.Options{}, func(
			t *testing.T, srv *fakemongo.Server, c *client.Client,
		) {
			if err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, cmd := range srv.Commands("isMaster") {
				v, _ := cmd.Body.Lookup("compression")
				array, ok := v.Array()
				var names []string
				for _, v := range array.All() {
					name, _ := v.Str()
					names = append(names, name)
				}
				if !ok || strings.Join(names, " ") != want {
					t.Errorf("?%s: hello offers %q, want %q", query, names, want)
				}
			}
			if unknown := strings.Contains(query, "snoopy"); (len(c.Warnings()) == 1) != unknown {
				t.Errorf("?%s: warnings %v", query, c.Warnings())
			}
		})
	}
}
