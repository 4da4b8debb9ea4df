// Package admin serves what operators and their tools ask of a gateway over HTTP: /metrics to
// anyone who reaches the listener, and calls that change something to this machine only.
package admin

import (
	"net/http"
)

// Config holds what is served.
type Config struct {
	// Metrics serves /metrics.
	Metrics http.Handler
}

// Handler serves the admin listener.
func Handler(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", cfg.Metrics)
	return mux
}
