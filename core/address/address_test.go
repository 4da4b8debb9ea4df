package address_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/address"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, text string
		want       address.Address
		network    string
		host, port string
	}{
		{"name", "example.com", "example.com:27017", "tcp", "example.com", "27017"},
		{"upper case", "Example.COM:27018", "example.com:27018", "tcp", "example.com", "27018"},
		{"leading zeros of the port", "a:00080", "a:80", "tcp", "a", "80"},
		{"IPv4", "127.0.0.1", "127.0.0.1:27017", "tcp", "127.0.0.1", "27017"},
		{"IPv6", "[::1]", "[::1]:27017", "tcp", "::1", "27017"},
		{"IPv6 and port", "[FE80::1]:1", "[fe80::1]:1", "tcp", "fe80::1", "1"},
		{"socket", "/Tmp/mongodb-27017.sock", "/Tmp/mongodb-27017.sock", "unix", "/Tmp/mongodb-27017.sock", ""},
		{"relative socket", "rel/m.sock", "rel/m.sock", "unix", "rel/m.sock", ""},
		{"a host like a socket", "M.sock", "m.sock:27017", "tcp", "m.sock", "27017"},
		{"last port", "a:65535", "a:65535", "tcp", "a", "65535"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := address.Parse(tt.text)
			if err != nil || got != tt.want {
				t.Fatalf("Parse(%q) = %q, %v, want %q", tt.text, got, err, tt.want)
			}
			if got.Network() != tt.network || got.Host() != tt.host || got.Port() != tt.port {
				t.Errorf("%q: Network, Host, Port = %q, %q, %q, want %q, %q, %q",
					got, got.Network(), got.Host(), got.Port(), tt.network, tt.host, tt.port)
			}
			again, err := address.Parse(string(got))
			if err != nil || again != got {
				t.Errorf("Parse(%q) = %q, %v, want itself", got, again, err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", ":27017", "a:", "a:0", "a:65536", "a:-1", "a:+1", "a:b", "::1", "::1:27017", "[::1", "[::1]27017", "[a]",
		"[127.0.0.1]", "a]", "a[::1]", "[]:1", "/tmp/socket", "a b", "a/b", "a:1:2",
	} {
		if got, err := address.Parse(text); err == nil {
			t.Errorf("Parse(%q) = %q, want an error", text, got)
		}
	}
}
