package config_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestProxies checks the options about proxies, and combinations that would have no effect.
func TestProxies(t *testing.T) {
	for _, row := range []struct{ name, args, want string }{
		{"none", "", "[]  false false"},
		{"a header", "--proxies-addresses=10.0.0.0/8,192.0.2.1,::1,2001:db8::/32,::ffff:10.1.1.1 --proxies-header=forwarded", "[10.0.0.0/8 192.0.2.1/32 ::1/128 2001:db8::/32 10.1.1.1/32] Forwarded false false"},
		{"the protocol", "--proxies-addresses=10.0.0.1 --grpc-proxy-protocol", "[10.0.0.1/32]  true false"},
		{"all", "--proxies-addresses=10.0.0.1 --grpc-proxy-protocol --rest-proxy-protocol --proxies-header=X-Forwarded-For", "[10.0.0.1/32] X-Forwarded-For true true"},
		{"every address", "--proxies-addresses=0.0.0.0/0 --proxies-header=Forwarded", "every address"},
		{"every address of IPv6", "--proxies-addresses=::/0 --proxies-header=Forwarded", "every address"},
		{"bits beyond the length", "--proxies-addresses=10.0.0.1/8 --proxies-header=Forwarded", "write 10.0.0.0/8"},
		{"a name", "--proxies-addresses=lb.example --proxies-header=Forwarded", "not an IP address"},
		{"a zone", "--proxies-addresses=fe80::1%eth0 --proxies-header=Forwarded", "not an IP address"},
		{"a malformed network", "--proxies-addresses=10.0.0.0/33 --proxies-header=Forwarded", "not an IP address"},
		{"IPv4 in IPv6", "--proxies-addresses=::ffff:10.0.0.0/104 --proxies-header=Forwarded", "not an IP address"},
		{"another header", "--proxies-addresses=10.0.0.1 --proxies-header=X-Real-IP", "not one of [Forwarded X-Forwarded-For] or none"},
		{"addresses alone", "--proxies-addresses=10.0.0.1", "option proxies.addresses"},
		{"a header alone", "--proxies-header=Forwarded", "option proxies.header: needs proxies.addresses"},
		{"the protocol alone", "--rest-proxy-protocol", "option rest.proxyProtocol: needs proxies.addresses"},
		{"a socket", "--proxies-addresses=10.0.0.1 --rest-proxy-protocol --rest-address=unix:/run/x", "option rest.proxyProtocol: is only for TCP addresses"},
		{"no port", "--proxies-addresses=10.0.0.1 --grpc-proxy-protocol --grpc-address=none", "option grpc.proxyProtocol: is only for TCP addresses"},
	} {
		c, err := load(t, append([]string{
			"--uri", uri, "--handle-keys", key, "--idempotency-key", key,
		}, strings.Fields(row.args)...), nil)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%v %s %t %t", c.Proxies.Networks, c.Proxies.Header, c.GRPC.Proxied,
				c.REST.Proxied)
			if listed := len(c.Proxies.Networks) > 0; listed != (c.Proxied() != nil) {
				t.Errorf("%s: Proxied = %v", row.name, c.Proxied())
			}
		}
		if err == nil && got != row.want || !strings.Contains(got, row.want) {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}
