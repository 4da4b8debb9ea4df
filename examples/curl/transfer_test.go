// Package curl_test runs the scripts of this folder where something is missing.
package curl_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
)

// TestTransferSaysWhy runs transfer.sh where a call is refused: the script ends with the gateway's
// message.
func TestTransferSaysWhy(t *testing.T) {
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	for refused, why := range map[string]string{
		"transactions:begin":   "transactions need a replica set",
		"documents:deleteMany": "no permission",
	} {
		gateway := httptest.NewServer(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, refused) {
					w.WriteHeader(http.StatusBadRequest)
					_, _ = io.WriteString(w, `{"error":{"message":"`+why+`"}}`)
					return
				}
				_, _ = io.WriteString(w, "{}")
			}))
		script := exec.CommandContext(t.Context(), "sh", "transfer.sh")
		script.Env = append(script.Environ(), "MOORING_REST="+gateway.URL, "no_proxy=127.0.0.1")
		out, err := script.CombinedOutput()
		gateway.Close()
		if err == nil || !strings.Contains(string(out), why) {
			t.Errorf("%s is refused: %v\n%s", refused, err, out)
		}
	}
}
