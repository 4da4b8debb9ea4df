package app_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestForwardedOnEveryProtocol reads the page of a cursor, and kills the cursor, at the replica
// that does not have it, over each protocol that knows of cursors. The replica that is called
// writes the line of the audit log and counts the call. The cursor's replica does neither, and its
// log names the client and the request.
func TestForwardedOnEveryProtocol(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	key, line := newKey(t, "ops", time.Time{})
	keys := secretFile(t, "keys", line)
	audits := [2]string{filepath.Join(t.TempDir(), "audit"), filepath.Join(t.TempDir(), "audit")}
	options := func(audit string) []string {
		return []string{
			"--auth-api-keys-file", keys, "--auth-operators", "key:ops", "--audit-file", audit,
			"--admin-address=127.0.0.1:0",
		}
	}
	b := replica(t, mongo.URI(), "", options(audits[1])...)
	a := replica(t, mongo.URI(), b.Addresses().Replica, options(audits[0])...)

	authorization := "Bearer " + key
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", authorization)
	for protocol, call := range callers(t, a,
		credential{key: "authorization", value: authorization}) {
		page, err := mooringv1.NewDocumentServiceClient(b.cc).Find(ctx,
			&mooringv1.FindRequest{Database: "db", Collection: "c", BatchSize: new(int32(5))})
		if err != nil {
			t.Fatal(err)
		}
		list, err := mooringv1.NewDeploymentServiceClient(b.cc).
			ListHandles(ctx, &mooringv1.ListHandlesRequest{})
		if err != nil || len(list.GetHandles()) != 1 {
			t.Fatalf("ListHandles = %v, %v, want the cursor", list, err)
		}
		before := counts(a, b)
		call("CursorService/NextPage", "/v1/cursors:next",
			&mooringv1.NextPageRequest{Cursor: page.GetCursor()})
		call("DeploymentService/KillHandle", "/v1/deployment/handles:kill",
			&mooringv1.KillHandleRequest{Id: list.GetHandles()[0].GetId()})
		if n := mongo.OpenCursors(); n != 0 {
			t.Errorf("%s: %d cursors are open", protocol, n)
		}
		if after := counts(a, b); after[0] != before[0]+2 || after[1] != before[1] {
			t.Errorf("%s: the replicas count %v calls, and %v before", protocol, after, before)
		}
		for _, method := range []string{"CursorService/NextPage", "DeploymentService/KillHandle"} {
			here, there := lastRequest(a, method), lastRequest(b, method)
			if here == "" || here != there {
				t.Errorf("%s: the log has %q, and at the replica with the cursor %q", protocol,
					here, there)
			}
		}
	}
	kill := "key:ops DeploymentService/KillHandle  ok"
	if got := audited(t, audits[0]); !slices.Equal(got, []string{kill, kill, kill, kill}) {
		t.Errorf("the replica that is called audits %q, want four times %q", got, kill)
	}
	if got := audited(t, audits[1]); slices.Contains(got, kill) {
		t.Errorf("the replica with the cursors audits %q", got)
	}
	a.stop()
	b.stop()
}

// callers returns what makes a call at a gateway, by the name of the protocol.
func callers(
	t *testing.T, g *gateway, c credential,
) map[string]func(method, path string, m proto.Message) {
	present := func(path, form string, body []byte) {
		t.Helper()
		status, text := g.present(t.Context(), path, form, body, c)
		if status != http.StatusOK || strings.HasPrefix(string(text), "\x80") {
			t.Errorf("%s in %s: %d %q", path, form, status, text)
		}
	}
	encode := func(m proto.Message) []byte {
		t.Helper()
		b, err := proto.Marshal(m)
		if err != nil || len(b) > 255 {
			t.Fatal(len(b), err)
		}
		return b
	}
	return map[string]func(method, path string, m proto.Message){
		"gRPC": func(method, _ string, m proto.Message) {
			t.Helper()
			ctx := metadata.AppendToOutgoingContext(t.Context(), c.key, c.value)
			var answer proto.Message = &mooringv1.NextPageResponse{}
			if strings.HasSuffix(method, "KillHandle") {
				answer = &mooringv1.KillHandleResponse{}
			}
			if err := g.cc.Invoke(ctx, "/mooring.v1."+method, m, answer); err != nil {
				t.Errorf("%s: %v", method, err)
			}
		},
		"REST": func(_, path string, m proto.Message) {
			t.Helper()
			body, err := protojson.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			present(path, "application/json", body)
		},
		"gRPC-Web": func(method, _ string, m proto.Message) {
			t.Helper()
			b := encode(m)
			present("/mooring.v1."+method, "application/grpc-web+proto",
				append([]byte{0, 0, 0, 0, byte(len(b))}, b...))
		},
		"Connect": func(method, _ string, m proto.Message) {
			t.Helper()
			present("/mooring.v1."+method, "application/proto", encode(m))
		},
	}
}

// calls finds what a gateway counts of calls.
var calls = regexp.MustCompile(
	`(?m)^rpc_server_call_duration_seconds_count\{rpc_method="mooring\.v1\.(?:CursorService/NextPage|DeploymentService/KillHandle)"[^}]*\} (\d+)`)

// counts returns how many calls each gateway counts.
func counts(all ...*gateway) (sums []int) {
	for _, g := range all {
		sum := 0
		for _, found := range calls.FindAllStringSubmatch(g.metrics(), -1) {
			n := 0
			_, _ = fmt.Sscan(found[1], &n)
			sum += n
		}
		sums = append(sums, sum)
	}
	return sums
}

// request finds a call in the log, but for how long it took.
var request = regexp.MustCompile(`(?m)msg=request method=/mooring\.v1\.(\S+) (.*) duration=`)

// lastRequest returns what a gateway's log says of the last call of a method.
func lastRequest(g *gateway, method string) (last string) {
	for _, found := range request.FindAllStringSubmatch(g.log.String(), -1) {
		if found[1] == method {
			last = found[2]
		}
	}
	return last
}
