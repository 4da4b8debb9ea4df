package app_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/issuertest"
	"github.com/mooringdb/mooring/service/caller"
)

// credential is one of the matrix: metadata or a header, and whether it counts.
type credential struct {
	name, key, value string
	counts, operator bool
}

// may reports whether a client with the credential may call the methods of a service.
func (c *credential) may(service protoreflect.Name) bool {
	return c.operator || service != "DeploymentService"
}

// newKey returns a new API key and its line.
func newKey(t testing.TB, principal string, expires time.Time) (key, line string) {
	t.Helper()
	key, line, err := caller.NewKey(principal, expires)
	if err != nil {
		t.Fatal(err)
	}
	return key, line
}

// newIssuer serves an issuer of tokens on loopback.
func newIssuer(t *testing.T) (*issuertest.Issuer, string) {
	t.Helper()
	i := issuertest.New(t, "")
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	i.SetURL(s.URL)
	return i, s.URL
}

func secretFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newMatrix returns what starts a gateway with API keys and tokens, and credentials of all kinds.
func newMatrix(t *testing.T, args ...string) (func() *gateway, []credential) {
	t.Helper()
	right, line := newKey(t, "shop", time.Time{})
	expired, oldLine := newKey(t, "shop", time.Now().Add(-time.Hour))
	wrong, _ := newKey(t, "shop", time.Time{})
	operator, operatorLine := newKey(t, "operator", time.Time{})
	issuer, url := newIssuer(t)
	claims := issuer.Claims("ann")
	claims["exp"] = time.Now().Add(-time.Hour).Unix()
	old := issuertest.Sign(t, issuer.Key(), "ES256", claims)
	claims = issuer.Claims("ann")
	claims["aud"] = "other"
	other := issuertest.Sign(t, issuer.Key(), "ES256", claims)

	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(3, 10)...)
	keys := secretFile(t, "keys", line+"\n"+oldLine+"\n"+operatorLine)
	begin := func() *gateway {
		return start(t, mongo.URI(),
			append(args, "--auth-api-keys-file", keys, "--auth-jwt-issuer", url,
				"--auth-jwt-audience", issuertest.Audience, "--auth-operators", "key:operator",
				"--handle-keys", handleKey, "--idempotency-key", handleKey)...)
	}
	bearer := func(name, text string, counts bool) credential {
		return credential{name, "authorization", "Bearer " + text, counts, false}
	}
	return begin, []credential{
		{name: "none"},
		bearer("wrong key", wrong, false), bearer("expired key", expired, false), bearer("right key", right, true),
		{"wrong key in a header", "api-key", wrong, false, false},
		{"right key in a header", "api-key", right, true, false},
		{"key of an operator", "api-key", operator, true, true},
		bearer("wrong token", other, false), bearer("expired token", old, false), bearer("right token", issuer.Token(t, "ann"), true),
		{"another scheme", "authorization", "Basic " + right, false, false},
	}
}

// methods calls f for each RPC of the API.
func methods(f func(m protoreflect.MethodDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage("mooring.v1", func(
		file protoreflect.FileDescriptor,
	) bool {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				f(s.Methods().Get(j))
			}
		}
		return true
	})
}

// callEmpty makes a call with an empty request, and returns its status. A stream is read up to its
// first message.
func callEmpty(ctx context.Context, cc *grpc.ClientConn, method string, streams bool) codes.Code {
	if !streams {
		return status.Code(cc.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{}))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = errors.Join(s.SendMsg(&emptypb.Empty{}), s.CloseSend())
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = s.RecvMsg(&emptypb.Empty{})
	}
	if errors.Is(err, io.EOF) {
		return codes.OK
	}
	return status.Code(err)
}

// forwarding is the metadata in which a replica says for which client it forwards a call.
const forwarding = "mooring-forwarding-bin"

// asserted returns what a replica would say of a call of the operator.
func asserted(t *testing.T) string {
	t.Helper()
	b, err := proto.Marshal(&replicav1.Forwarding{Principal: "key:operator", Claims: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// assert sets the headers with which a client could try to say the same over HTTP.
func assert(t *testing.T, h http.Header) {
	t.Helper()
	text := base64.StdEncoding.EncodeToString([]byte(asserted(t)))
	h.Set(forwarding, text)
	h.Set("Grpc-Metadata-"+forwarding, text)
}

// TestAccess calls each RPC and each REST path with each credential, over each protocol, as a
// client that also claims to be a replica which forwards a call of the operator. Each RPC gets a
// gateway of its own, since an address may fail only so often.
func TestAccess(t *testing.T) {
	begin, credentials := newMatrix(t)
	_, table := readRights(t)
	var names []string
	found := map[string]string{}
	methods(func(m protoreflect.MethodDescriptor) {
		name := string(m.Parent().Name()) + "/" + string(m.Name())
		want := table[name].status
		names = append(names, name)
		g := begin()
		defer checkLog(t, g, credentials)
		defer g.stop()
		g.ready()
		for _, c := range credentials {
			ctx, cancel := context.WithTimeout(t.Context(), waitTime)
			expected := codes.Unauthenticated.String()
			switch {
			case c.counts && !c.may(m.Parent().Name()):
				expected = codes.PermissionDenied.String()
			case c.counts:
				expected = want
			}
			if c.key != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, c.key, c.value)
			}
			// Names that a gateway could take for the result of authentication.
			ctx = metadata.AppendToOutgoingContext(ctx, "principal", "key:shop",
				"mooring-principal", "key:shop", forwarding, asserted(t))
			got := callEmpty(ctx, g.cc, "/mooring.v1."+name, m.IsStreamingServer() ||
				m.IsStreamingClient()).String()
			if c.counts && c.may(m.Parent().Name()) {
				found[name] = got
			}
			if got != expected {
				t.Errorf("gRPC %s with %s: %s, want %s", name, c.name, got, expected)
			}
			if got := g.callWeb(ctx, m, c); got != expected {
				t.Errorf("gRPC-Web %s with %s: %s, want %s", name, c.name, got, expected)
			}
			if got := g.callConnect(ctx, m, c); got != expected {
				t.Errorf("Connect %s with %s: %s, want %s", name, c.name, got, expected)
			}
			cancel()
		}
		for _, path := range restPaths(m) {
			names = append(names, path)
			found[path] = accessPath(t, g, credentials, m.Parent().Name(), path, table[path].status)
		}
	})
	checkRights(t, names, found, func(r *right) *string { return &r.status })
}

func checkLog(t *testing.T, g *gateway, credentials []credential) {
	t.Helper()
	for _, c := range credentials {
		if secret := c.value[strings.LastIndex(c.value, " ")+1:]; secret != "" &&
			strings.Contains(g.log.String(), secret) {
			t.Errorf("the log has a credential: %s", c.name)
		}
	}
}

var variable = regexp.MustCompile(`\{[^}]*\}`)

// resourceVerbs has the HTTP method of each call of a document resource.
var resourceVerbs = map[protoreflect.Name]string{
	"GetDocument": http.MethodGet, "PutDocument": http.MethodPut,
	"PatchDocument": http.MethodPatch, "DeleteDocument": http.MethodDelete,
}

// restPaths returns the REST paths of an RPC with their methods, such as "GET /v1/databases".
func restPaths(m protoreflect.MethodDescriptor) (paths []string) {
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if verb, ok := resourceVerbs[m.Name()]; ok { // so has a document
		return []string{verb + " /v1/databases/{database}/collections/{collection}/documents/{id}"}
	}
	if m.IsStreamingClient() { // it has a path without an annotation
		return []string{"POST /v1/databases/{database}/collections/{collection}/documents:import"}
	}
	if m.Name() == "CreateTicket" { // so has a ticket
		paths = append(paths, "GET /v1/changeStreams/{ticket}")
	}
	for _, b := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		if get := b.GetGet(); get != "" {
			paths = append(paths, "GET "+get)
		} else {
			paths = append(paths, "POST "+b.GetPost())
		}
	}
	return paths
}

// accessPath calls a path with each credential, and returns the status of those that may.
func accessPath(
	t *testing.T, g *gateway, credentials []credential, service protoreflect.Name, name,
	want string,
) (found string) {
	t.Helper()
	method, path, _ := strings.Cut(name, " ")
	body, form := "{}", "application/json"
	if method == http.MethodGet || method == http.MethodDelete {
		body = ""
	}
	if strings.HasSuffix(path, ":import") {
		form = "application/x-ndjson"
	}
	path = strings.NewReplacer("{collection}", "c", "{id}", "7").Replace(path)
	path = variable.ReplaceAllString(path, "db")
	for _, c := range credentials {
		expected := "401"
		switch {
		case c.counts && !c.may(service):
			expected = "403"
		case c.counts:
			expected = want
		}
		ctx, cancel := context.WithTimeout(t.Context(), waitTime)
		r, err := http.NewRequestWithContext(ctx, method, "http://"+g.Addresses().REST+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", form)
		r.Header.Set("Principal", "key:shop")
		r.Header.Set("Grpc-Metadata-Authorization", "Bearer x")
		assert(t, r.Header)
		if c.key != "" {
			r.Header.Set(c.key, c.value)
		}
		resp, err := g.http.Do(r)
		if err != nil {
			t.Fatalf("%s with %s: %v", name, c.name, err)
		}
		got := strconv.Itoa(resp.StatusCode)
		if c.counts && c.may(service) {
			found = got
		}
		if got != expected || (got == "401") != (resp.Header.Get("Www-Authenticate") != "") {
			t.Errorf("REST %s with %s: %s %s, want %s", name, c.name, got,
				resp.Header.Get("Www-Authenticate"), expected)
		}
		cancel()
		resp.Body.Close()
	}
	return found
}

// present sends a body with a credential to a path of the REST port, and returns the response. It
// ends at the first message of a stream.
func (g *gateway) present(
	ctx context.Context, path, form string, body []byte, c credential,
) (int, []byte) {
	g.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.Addresses().REST+path, bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Content-Type", form)
	assert(g.t, r.Header)
	if c.key != "" {
		r.Header.Set(c.key, c.value)
	}
	resp, err := g.http.Do(r)
	if err != nil {
		g.t.Fatalf("%s with %s: %v", path, c.name, err)
	}
	defer resp.Body.Close()
	text := make([]byte, 64<<10)
	n, err := io.ReadAtLeast(resp.Body, text, 5)
	if err == nil {
		more := 0
		if size := 5 +
			int(binary.BigEndian.Uint32(text[1:5])); strings.Contains(form, "grpc-web") ||
			strings.Contains(form, "connect") {
			if n < size && size <= len(text) {
				more, _ = io.ReadFull(resp.Body, text[n:size])
			}
		} else {
			more, _ = io.ReadFull(resp.Body, text[n:])
		}
		n += more
	}
	return resp.StatusCode, text[:n]
}

// callWeb makes a call with an empty request as gRPC-Web, and returns its status: that of its
// trailers, or OK if a message comes before them.
func (g *gateway) callWeb(
	ctx context.Context, m protoreflect.MethodDescriptor, c credential,
) string {
	g.t.Helper()
	_, text := g.present(ctx, "/"+string(m.Parent().FullName())+"/"+string(m.Name()),
		"application/grpc-web+proto", make([]byte, 5), c)
	if len(text) < 5 || text[0] != 0x80 {
		return codes.OK.String()
	}
	n, err := strconv.Atoi(regexp.MustCompile(`grpc-status: (\d+)`).
		FindStringSubmatch(string(text))[1])
	if err != nil {
		g.t.Fatal(err)
	}
	return codes.Code(n).String()
}

// callConnect does what callWeb does in the protocol of Connect.
func (g *gateway) callConnect(
	ctx context.Context, m protoreflect.MethodDescriptor, c credential,
) string {
	g.t.Helper()
	path := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	form, body := "application/proto", []byte(nil)
	if m.IsStreamingClient() || m.IsStreamingServer() {
		form, body = "application/connect+proto", make([]byte, 5)
	}
	status, text := g.present(ctx, path, form, body, c)
	if body == nil && status == http.StatusOK {
		return codes.OK.String()
	}
	found := regexp.MustCompile(`"code":"([a-z_]+)"`).FindSubmatch(text)
	if found == nil {
		return codes.OK.String()
	}
	for n := codes.Canceled; n <= codes.Unauthenticated; n++ {
		if strings.EqualFold(n.String(), strings.ReplaceAll(string(found[1]), "_", "")) {
			return n.String()
		}
	}
	return string(found[1])
}

// TestAccessDataAPI calls each action of the Atlas Data API with each credential, and with a token
// in the header that only this API has.
func TestAccessDataAPI(t *testing.T) {
	begin, credentials := newMatrix(t, "--data-api-sources=main")
	for _, c := range credentials {
		if token, ok := strings.CutPrefix(c.value, "Bearer "); ok &&
			strings.HasSuffix(c.name, "token") {
			credentials = append(credentials,
				credential{c.name + " as jwtTokenString", "Jwttokenstring", token, c.counts, false})
		}
	}
	g := begin()
	defer checkLog(t, g, credentials)
	defer g.stop()
	g.ready()
	const common = `"dataSource":"main","database":"db","collection":"c"`
	for action, fields := range map[string]string{
		"findOne": ``, "find": ``, "insertOne": `,"document":{"a":1}`, "insertMany": `,"documents":[{}]`,
		"updateOne": `,"filter":{},"update":{"$set":{"a":1}}`, "updateMany": `,"filter":{},"update":{"$set":{"a":1}}`,
		"replaceOne": `,"filter":{},"replacement":{}`, "deleteOne": `,"filter":{}`, "deleteMany": `,"filter":{}`, "aggregate": `,"pipeline":[]`,
	} {
		for _, c := range credentials {
			ctx, cancel := context.WithTimeout(t.Context(), waitTime)
			status, text := g.present(ctx, "/app/any/endpoint/data/v1/action/"+action,
				"application/json", []byte("{"+common+fields+"}"), c)
			cancel()
			refused := status == http.StatusUnauthorized &&
				strings.Contains(string(text), "InvalidSession")
			if c.key == "" {
				refused = status == http.StatusBadRequest &&
					strings.Contains(string(text), "no authentication methods were specified")
			}
			if refused == c.counts {
				t.Errorf("%s with %s: %d %s", action, c.name, status, text)
			}
		}
	}
}

// TestOpenDoors checks what answers without credentials, and that reflection does not.
func TestOpenDoors(t *testing.T) {
	begin, credentials := newMatrix(t)
	g := begin()
	g.ready() // gRPC's health
	if r, err := healthpb.NewHealthClient(g.cc).
		Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("Check = %v, %v", r, err)
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/openapi.json": 200, "/": 200, "/v1": 401, "/healthz/x": 401, "/debug/vars": 401,
	} {
		if got := g.status(path); got != want {
			t.Errorf("GET %s = %d, want %d", path, got, want)
		}
	}
	for _, c := range credentials {
		ctx := t.Context()
		if c.key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, c.key, c.value)
		}
		ctx, cancel := context.WithCancel(ctx)
		r, err := reflectionpb.NewServerReflectionClient(g.cc).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Send(&reflectionpb.ServerReflectionRequest{
			MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
		})
		if _, err = r.Recv(); (err == nil) != c.counts ||
			err != nil && status.Code(err) != codes.Unauthenticated {
			t.Errorf("reflection with %s: %v", c.name, err)
		}
		cancel()
	}
	g.stop()
}

// TestCursorsBelongToPrincipals checks that a token of one principal is of no use to another.
func TestCursorsBelongToPrincipals(t *testing.T) {
	ann, annLine := newKey(t, "ann", time.Time{})
	bob, bobLine := newKey(t, "bob", time.Time{})
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(300, 10)...)
	g := start(t, mongo.URI(), "--auth-api-keys", annLine+"\n"+bobLine, "--handle-keys", handleKey,
		"--idempotency-key", handleKey)
	g.ready()
	post := func(key, path, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.Addresses().REST+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Api-Key", key)
		resp, err := g.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	_, page := post(ann, "/v1/databases/db/collections/c/documents:find", `{"batchSize":10}`)
	token := regexp.MustCompile(`"cursor":"([^"]*)"`).FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("no cursor: %s", page)
	}
	next := `{"cursor":"` + token[1] + `"}`
	if code, body := post(bob, "/v1/cursors:next", next); code != http.StatusNotFound ||
		!strings.Contains(body, "CursorNotFound") {
		t.Errorf("another principal's next: %d %s", code, body)
	}
	if code, body := post(ann, "/v1/cursors:next", next); code != http.StatusOK {
		t.Errorf("its own next: %d %s", code, body)
	}
	g.stop()
}
