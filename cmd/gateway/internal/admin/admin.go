// Package admin serves what operators and their tools ask of a gateway over HTTP: /metrics and
// health to anyone who reaches the listener, and changes of the log's level to this machine only.
package admin

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Config holds what is served.
type Config struct {
	// Metrics serves /metrics.
	Metrics http.Handler
	// Health serves /healthz and /readyz, for probes that clients cannot keep out.
	Health http.Handler
	// Level and SetLevel read and change the level of the log.
	Level    func() slog.Level
	SetLevel func(slog.Level)
}

// Handler serves the admin listener.
func Handler(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", cfg.Metrics)
	mux.Handle("GET /healthz", cfg.Health)
	mux.Handle("GET /readyz", cfg.Health)
	mux.HandleFunc("GET /log/level", func(w http.ResponseWriter, _ *http.Request) {
		cfg.answer(w)
	})
	mux.Handle("PUT /log/level", local(cfg.putLevel))
	return mux
}

func (c Config) answer(w http.ResponseWriter) {
	// A client that is gone needs no answer.
	_, _ = fmt.Fprintln(w, strings.ToLower(c.Level().String()))
}

// maxLevel is more than the name of a level needs.
const maxLevel = 16

func (c Config) putLevel(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxLevel))
	var level slog.Level
	if err == nil {
		err = level.UnmarshalText([]byte(strings.TrimSpace(string(text))))
	}
	if err != nil {
		http.Error(w, "the body is debug, info, warn or error", http.StatusBadRequest)
		return
	}
	c.SetLevel(level)
	c.answer(w)
}

// local refuses requests of other machines, and those whose Host does not name this machine: a page
// of another site could have pointed a name of its own here (DNS rebinding).
func local(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.RemoteAddr) && !isUnix(r) || !isLoopback(r.Host) {
			http.Error(w, "only local requests can change something", http.StatusForbidden)
			return
		}
		h(w, r)
	})
}

// isUnix reports whether a request came over a Unix domain socket.
func isUnix(r *http.Request) bool {
	address, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && address.Network() == "unix"
}

// isLoopback reports whether host:port, or a host, names this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
