package protocols

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// interopCases has the cases of gRPC's interoperability tests that need nothing of a cloud: the
// others are about credentials of Google's, load reports (ORCA) and several backends.
var interopCases = []string{
	"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong",
	"empty_stream", "timeout_on_sleeping_server", "cancel_after_begin",
	"cancel_after_first_response", "status_code_and_message", "special_status_message",
	"custom_metadata", "unimplemented_method", "unimplemented_service",
	"rpc_soak", "channel_soak",
}

// TestInterop runs gRPC's interoperability client against the port of gRPC.
func TestInterop(t *testing.T) {
	client := suite(t, "google.golang.org/grpc/interop/client")
	s := stack{register: registerInterop, services: []string{interopService}}
	host, port, err := net.SplitHostPort(s.serve(t).GRPC)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range interopCases {
		t.Run(name, func(t *testing.T) {
			run := func() (string, error) {
				out, err := exec.CommandContext(t.Context(), client, "--server_host", host,
					"--server_port", port, "--test_case", name, "--soak_iterations", "100",
					"--soak_min_time_ms_between_rpcs", "1",
					"--soak_per_iteration_max_acceptable_latency_ms", "10000").CombinedOutput()
				if err == nil && strings.Contains(string(out), "ERROR") {
					err = errors.New("there is an error in its output")
				}
				return string(out), err
			}
			out, err := run()
			if err != nil && name == "cancel_after_begin" {
				// The client may get an answer that is there when it looks, though it has canceled
				// the call before.
				out, err = run()
			}
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
