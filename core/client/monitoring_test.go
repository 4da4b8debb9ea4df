package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestServerMonitoringMode: auto streams, but polls in a function as a service; stream and poll do
// so wherever they are (OPT-027).
func TestServerMonitoringMode(t *testing.T) {
	for name, test := range map[string]struct {
		option   string
		function bool
		streams  int
	}{
		"default":            {"", false, 1},
		"auto":               {"serverMonitoringMode=auto", false, 1},
		"auto in a function": {"serverMonitoringMode=auto", true, 0},
		"default there":      {"", true, 0},
		"stream":             {"serverMonitoringMode=stream", false, 1},
		"stream there":       {"serverMonitoringMode=stream", true, 1},
		"poll":               {"serverMonitoringMode=poll", false, 0},
		"no such mode":       {"serverMonitoringMode=nonsense", false, 1}, // SMON-024
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{
				"AWS_EXECUTION_ENV", "AWS_LAMBDA_RUNTIME_API", "K_SERVICE", "FUNCTION_NAME", "VERCEL", "FUNCTIONS_WORKER_RUNTIME",
			} {
				t.Setenv(variable, "")
			}
			if test.function {
				t.Setenv("AWS_EXECUTION_ENV", "AWS_Lambda_go1.x")
			}
			synctest.Test(t, func(t *testing.T) {
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
				connect(t, cluster, test.option, client.Options{})
				time.Sleep(time.Second) //nolint:forbidigo // fake time
				synctest.Wait()
				host := cluster.Host(0)
				// one of RTT comes with a stream
				if host.Streams() != test.streams || host.OpenConnections() != 1+test.streams {
					t.Errorf("%d streams and %d connections, want %d and %d",
						host.Streams(), host.OpenConnections(), test.streams, 1+test.streams)
				}
			})
		})
	}
}
