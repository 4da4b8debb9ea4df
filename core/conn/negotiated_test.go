package conn_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func TestNegotiated(t *testing.T) {
	plain := dial(t, fakemongo.NewServer(t, nil), conn.Config{Compressors: []string{"zstd"}})
	if _, ok := plain.TLS(); ok || plain.Compressor() != "" {
		t.Errorf("TLS() = _, %v, Compressor() = %q without either", ok, plain.Compressor())
	}
	packed := dial(t, supporting(t, "zlib", "snappy"),
		conn.Config{Compressors: []string{"zstd", "snappy", "zlib"}})
	if got := packed.Compressor(); got != "snappy" {
		t.Errorf("Compressor() = %q, want snappy", got)
	}

	ca := certtest.Authority(t, certtest.ECDSA)
	server := ca.Issue(t, "127.0.0.1")
	s := fakemongo.NewTCPServer(t, nil)
	s.UseTLS(presents(server))
	c, err := conn.Dial(t.Context(), s.Address(), useTLS(t, connstring.TLS{CAFile: caFile(t, ca)}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if state, ok := c.TLS(); !ok || !state.PeerCertificates[0].Equal(server.Certificate) {
		t.Errorf("TLS() = %v, %v; want the server's certificate", state.PeerCertificates, ok)
	}
}
