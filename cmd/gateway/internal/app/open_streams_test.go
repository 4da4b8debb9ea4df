package app_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

// opened is an open stream of a test: end reads it to its end, and returns what it says there.
type opened struct {
	name string
	end  func() string
}

// openHTTP opens a stream on the REST port, and reads what it begins with.
func (g *gateway) openHTTP(name, method, path, form, accept, key string, body []byte) opened {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.Addresses().REST+path, strings.NewReader(string(body)))
	if err != nil {
		g.t.Fatal(err)
	}
	for header, value := range map[string]string{
		"Content-Type": form, "Accept": accept, "Api-Key": key,
	} {
		if value != "" {
			r.Header.Set(header, value)
		}
	}
	resp, err := g.http.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, first); err != nil || resp.StatusCode != http.StatusOK {
		rest, _ := io.ReadAll(resp.Body)
		g.t.Fatalf("%s: %d, %v %s%s", name, resp.StatusCode, err, first, rest)
	}
	return opened{name, func() string {
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return string(text) + fmt.Sprint(resp.Trailer)
	}}
}

// openAll opens the changes of db.c in each way that there is.
func (g *gateway) openAll(key string) []opened {
	g.t.Helper()
	ctx := metadata.AppendToOutgoingContext(g.t.Context(), "api-key", key)
	watch, err := mooringv1.NewChangeStreamServiceClient(g.cc).
		Watch(ctx, &mooringv1.WatchRequest{Database: "db", Collection: new("c")})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		g.t.Fatal(err)
	}
	ticket := g.ticket(ctx)
	framed := func(message string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	}
	const path, rpc = "/v1/databases/db/collections/c:watch",
		"/mooring.v1.ChangeStreamService/Watch"
	const request, ndjson, sse = "\n\x02db\x12\x01c", "application/x-ndjson", "text/event-stream"
	return []opened{
		{"gRPC", func() string {
			for {
				if _, err := watch.Recv(); err != nil {
					return status.Code(err).String() + " " + err.Error()
				}
			}
		}},
		g.openHTTP("NDJSON", http.MethodPost, path, "application/json", ndjson, key, []byte("{}")),
		g.openHTTP("server-sent events", http.MethodGet, path, "", sse, key, nil),
		g.openHTTP("ticket", http.MethodGet, ticket, "", sse, "", nil),
		g.openHTTP("gRPC-Web", http.MethodPost, rpc, "application/grpc-web+proto", "", key, framed(request)),
		g.openHTTP("Connect", http.MethodPost, rpc, "application/connect+json", "", key, framed(`{"database": "db", "collection": "c"}`)),
	}
}

func (g *gateway) ticket(ctx context.Context) string {
	g.t.Helper()
	made, err := mooringv1.NewChangeStreamServiceClient(g.cc).
		CreateTicket(ctx, &mooringv1.CreateTicketRequest{
			Watch: &mooringv1.WatchRequest{Database: "db", Collection: new("c")},
		})
	if err != nil {
		g.t.Fatal(err)
	}
	return made.GetUrl()
}

// saysCode reports whether the end of a stream has a code, in one of the forms that there are.
func saysCode(said string, want codes.Code) bool {
	coded := map[codes.Code]string{
		codes.PermissionDenied: "PERMISSION_DENIED", codes.Unauthenticated: "UNAUTHENTICATED",
	}[want]
	return strings.Contains(said, fmt.Sprintf("grpc-status: %d", want)) ||
		strings.Contains(strings.ToUpper(said), coded) || strings.Contains(said, want.String())
}

// TestOpenStreams replaces the files of the policy and of the API keys while streams are open, in
// each way that there is to open one. They end at once if their client would not be allowed the
// same any more, and say why. Streams that are still allowed go on.
func TestOpenStreams(t *testing.T) {
	key, line := newKey(t, "shop", time.Time{})
	_, other := newKey(t, "other", time.Time{})
	const allowed = `permit (principal in Group::"key:watchers", action in Action::"watch", resource in Database::"db");`
	policyFile, keysFile := secretFile(t, "policy", allowed),
		secretFile(t, "keys", line+" groups=watchers")
	uri := deployment.Listen(t, deployment.ReplicaSet, "7.0.0").URI(false, nil)
	g := start(t, uri, "--policy-file", policyFile, "--auth-api-keys-file", keysFile)
	replaced := 1
	// replace replaces a file by one with a number of rules or keys that no other has, and waits
	// until the gateway says that it has read so many.
	replace := func(file, text string) {
		t.Helper()
		replaced++
		counted := fmt.Sprintf(" keys=%d\n", replaced)
		if file == policyFile {
			counted = fmt.Sprintf(" rules=%d\n", 2+replaced)
			for strings.Count(text, ";") < 2+replaced {
				text += ` permit (principal == Principal::"key:other", action == Action::"Find", resource);`
			}
		}
		for file == keysFile && strings.Count(text, "\n") < replaced-1 {
			_, more := newKey(t, "other", time.Time{})
			text += "\n" + more
		}
		// In one step: the gateway reads the file when it changes.
		if err := os.Rename(secretFile(t, "new", text), file); err != nil {
			t.Fatal(err)
		}
		g.Reload()
		g.logs(counted, 1)
	}
	for i, row := range []struct {
		name, file, text string
		want             codes.Code
		says             string
	}{
		{"forbidden", policyFile, allowed + ` forbid (principal, action, resource == Collection::"db.c");`, codes.PermissionDenied, "does not allow Watch on db.c"},
		{"no rule", policyFile, `permit (principal, action in Action::"read", resource);`, codes.PermissionDenied, "does not allow Watch on db.c"},
		{"out of its group", keysFile, line, codes.PermissionDenied, "does not allow Watch on db.c"},
		{"another principal", keysFile, "x" + line + " groups=watchers", codes.Unauthenticated, "is no longer valid"},
		{"no such key", keysFile, other, codes.Unauthenticated, "is no longer valid"},
		{"ends sooner", keysFile, line + " groups=watchers expires=" + time.Now().Add(30*time.Minute).UTC().Format(time.RFC3339), codes.Unauthenticated, "now expires sooner"},
	} {
		open := g.openAll(key)
		// These change nothing for the streams.
		replace(policyFile,
			fmt.Sprintf(`@id("%d") %s permit (principal, action in Action::"read", resource);`, i,
				allowed))
		replace(keysFile, line+fmt.Sprintf(" groups=watchers claim.n=%d", i))
		if n := strings.Count(g.log.String(),
			"open stream ended"); row.want == codes.PermissionDenied && n != i*len(open) {
			t.Errorf("%s: %d streams have ended, want %d", row.name, n, i*len(open))
		}
		replace(row.file, row.text)
		for _, s := range open {
			said := s.end()
			if !strings.Contains(said, row.says) || !saysCode(said, row.want) {
				t.Errorf("%s, %s: %q", row.name, s.name, said)
			}
		}
		// A ticket that was made before is worth no more.
		replace(policyFile, allowed)
		replace(keysFile, line+" groups=watchers")
	}
	g.stop()
}

// imported is how many documents importTo sends in each way.
const imported = 128

// importTo begins an import in each way that there is: over HTTP with the body of a pipe, to which
// it has written two batches of documents when it returns. end waits for the answer while the body
// stays open, and returns what it says.
func (g *gateway) importTo(key string) []opened {
	g.t.Helper()
	documents := make([]*mooringv1.Document, imported)
	for i := range documents {
		documents[i] = &mooringv1.Document{Encoding: &mooringv1.Document_Json{
			Json: `{"pad": "` + strings.Repeat("x", 16<<10) + `"}`,
		}}
	}
	request := &mooringv1.ImportRequest{Database: "db", Collection: "c", Documents: documents}
	message, err := proto.Marshal(request)
	if err != nil {
		g.t.Fatal(err)
	}
	text, err := protojson.Marshal(&mooringv1.ImportRequest{
		Database: "db", Collection: "c", Documents: documents,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	framed := func(message []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	}
	lines := []byte(strings.Repeat(documents[0].GetJson()+"\n", len(documents)))
	ctx := metadata.AppendToOutgoingContext(g.t.Context(), "api-key", key)
	stream, err := mooringv1.NewDocumentServiceClient(g.cc).Import(ctx)
	if err == nil {
		err = stream.Send(request)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	const rpc = "/mooring.v1.DocumentService/Import"
	return []opened{
		{"gRPC", func() string {
			err := stream.RecvMsg(&mooringv1.ImportResponse{})
			return status.Code(err).String() + " " + status.Convert(err).Message()
		}},
		g.openBody("REST", "/v1/databases/db/collections/c/documents:import", "application/x-ndjson", key, lines),
		g.openBody("gRPC-Web", rpc, "application/grpc-web+proto", key, framed(message)),
		g.openBody("Connect", rpc, "application/connect+json", key, framed(text)),
	}
}

// openBody sends the beginning of a body, which stays open.
func (g *gateway) openBody(name, path, form, key string, begins []byte) opened {
	g.t.Helper()
	from, to := io.Pipe()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, "http://"+g.Addresses().REST+path, from)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Content-Type", form)
	r.Header.Set("Api-Key", key)
	said := make(chan string, 1)
	go func() {
		resp, err := g.http.Do(r)
		if err != nil {
			said <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		said <- fmt.Sprint(resp.StatusCode, string(text), resp.Header, resp.Trailer)
	}()
	if _, err := to.Write(begins); err != nil {
		g.t.Fatal(name, err)
	}
	return opened{name, func() string {
		defer func() { _ = to.Close() }()
		return <-said
	}}
}

// TestOpenImports replaces the policy and the API keys while imports are open, in each way that
// there is to make one, whose clients send nothing more. They end at once, and say why.
func TestOpenImports(t *testing.T) {
	key, line := newKey(t, "shop", time.Time{})
	_, other := newKey(t, "other", time.Time{})
	const allowed = `permit (principal, action in Action::"write", resource in Database::"db");`
	for _, row := range []struct {
		name, policy, keys string
		want               codes.Code
		says               string
	}{
		{"the collection is forbidden", allowed + `forbid (principal, action, resource == Collection::"db.c");`, line, codes.PermissionDenied, "does not allow Import on db.c"},
		{"a limit", `@readonly("x") ` + allowed, line, codes.PermissionDenied, "has changed what Import on db.c may do"},
		{"the key is gone", allowed, other, codes.Unauthenticated, "is no longer valid"},
		{"the principal is renamed", allowed, "re" + line, codes.Unauthenticated, "is no longer valid"},
	} {
		t.Run(row.name, func(t *testing.T) {
			policyFile, keysFile := secretFile(t, "policy", allowed), secretFile(t, "keys", line)
			d := deployment.Listen(t, deployment.ReplicaSet, "7.0.0")
			g := start(t, d.URI(false, nil), "--policy-file", policyFile, "--auth-api-keys-file",
				keysFile)
			open := g.importTo(key)
			g.until(func() (bool, string) {
				docs, _ := d.Documents("db.c")
				// More than they could have written if one of them had not begun.
				return len(docs) > (len(open)-1)*imported, fmt.Sprint(len(docs), " documents")
			})
			for file, text := range map[string]string{policyFile: row.policy, keysFile: row.keys} {
				if err := os.Rename(secretFile(t, "new", text), file); err != nil {
					t.Fatal(err)
				}
			}
			g.Reload()
			for _, s := range open {
				said := s.end()
				if !strings.Contains(said, row.says) || !saysCode(said, row.want) {
					t.Errorf("%s: %q", s.name, said)
				}
			}
			g.stop()
		})
	}
}
