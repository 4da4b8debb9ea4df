package admin_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/admin"
)

func TestHandler(t *testing.T) {
	level := new(slog.LevelVar)
	h := admin.Handler(admin.Config{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
		}),
		Health: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(r.URL.Path))
		}),
		Level: level.Level, SetLevel: level.Set,
	})
	const here = "127.0.0.1:5000"
	for _, row := range []struct {
		name, method, path, body string
		host, from               string
		unix                     bool
		want                     int
		answer                   string
		level                    slog.Level
	}{
		{"metrics", "GET", "/metrics", "", "gateway:9090", "192.0.2.1:5000", false, 418, "", slog.LevelInfo},
		{"health", "GET", "/healthz", "", "gateway:9090", "192.0.2.1:5000", false, 200, "/healthz", slog.LevelInfo},
		{"readiness", "GET", "/readyz", "", "gateway:9090", "192.0.2.1:5000", false, 200, "/readyz", slog.LevelInfo},
		{"wrong method", "POST", "/readyz", "", "gateway:9090", here, false, 405, "", slog.LevelInfo},
		{"no such path", "GET", "/", "", "gateway:9090", here, false, 404, "", slog.LevelInfo},
		{"level", "GET", "/log/level", "", "gateway:9090", "192.0.2.1:5000", false, 200, "info\n", slog.LevelInfo},
		{"another machine", "PUT", "/log/level", "debug", "localhost:9090", "192.0.2.1:5000", false, 403, "", slog.LevelInfo},
		{"another name", "PUT", "/log/level", "debug", "evil.example", here, false, 403, "", slog.LevelInfo},
		{"no level", "PUT", "/log/level", "loud", "localhost:9090", here, false, 400, "", slog.LevelInfo},
		{"debug", "PUT", "/log/level", "debug\n", "localhost:9090", here, false, 200, "debug\n", slog.LevelDebug},
		{"over IPv6", "PUT", "/log/level", "warn", "[::1]:9090", "[::1]:5000", false, 200, "warn\n", slog.LevelWarn},
		{"over a socket", "PUT", "/log/level", "INFO", "localhost", "@", true, 200, "info\n", slog.LevelInfo},
	} {
		r := httptest.NewRequest(row.method, row.path, strings.NewReader(row.body))
		r.Host, r.RemoteAddr = row.host, row.from
		if row.unix {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey,
				net.Addr(&net.UnixAddr{Net: "unix"})))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != row.want || row.answer != "" && w.Body.String() != row.answer ||
			level.Level() != row.level {
			t.Errorf("%s: %d %q, level %s", row.name, w.Code, w.Body, level.Level())
		}
	}
}
