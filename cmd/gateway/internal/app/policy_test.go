package app_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

const policies = "../../../../examples/policies/"

// TestPolicyAccess calls each RPC and each REST path for shop.orders, as a reader and a stranger
// under the read-only policy, and as a tenant and another stranger under that of tenants.
func TestPolicyAccess(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	allowed := map[string][]string{}
	var names []string
	for _, row := range []struct{ file, client, fields string }{
		{"read-only.cedar", "reader", " groups=readers"},
		{"read-only.cedar", "stranger", ""},
		{"tenant-isolation.cedar", "tenant", " claim.tenant=acme"},
		{"tenant-isolation.cedar", "guest", " claim.other=acme"},
	} {
		key, line := newKey(t, row.client, time.Time{})
		g := start(t, mongo.URI(), "--auth-api-keys-file", secretFile(t, "keys", line+row.fields),
			"--policy-file", policies+row.file, "--handle-keys", handleKey, "--idempotency-key",
			handleKey)
		g.ready()
		note := func(name string, may bool) {
			if row.client == "reader" {
				names = append(names, name)
			}
			if may {
				allowed[name] = append(allowed[name], row.client)
			}
		}
		methods(func(m protoreflect.MethodDescriptor) {
			ctx, cancel := context.WithTimeout(t.Context(), waitTime)
			defer cancel()
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
			err := callShop(ctx, g.cc, m)
			note(string(m.Parent().Name())+"/"+string(m.Name()),
				status.Code(err) != codes.PermissionDenied)
			for _, path := range restPaths(m) {
				note(path, restShop(t, g, key, path) != http.StatusForbidden)
			}
		})
		g.stop()
	}
	found := map[string]string{}
	for _, name := range names {
		found[name] = "none"
		if len(allowed[name]) > 0 {
			found[name] = strings.Join(allowed[name], " ")
		}
	}
	checkRights(t, names, found, func(r *right) *string { return &r.who })
}

// callShop calls a method with a request for shop.orders. A stream is read up to its first message.
func callShop(ctx context.Context, cc *grpc.ClientConn, m protoreflect.MethodDescriptor) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request, response := shopRequest(m), newMessage(m.Output())
	method := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	if !m.IsStreamingServer() && !m.IsStreamingClient() {
		return cc.Invoke(ctx, method, request, response)
	}
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	_ = s.SendMsg(request)
	_ = s.CloseSend()
	return s.RecvMsg(response)
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	return kind.New().Interface()
}

// shopRequest returns a request for shop.orders, with a write or a request in those that contain
// some.
func shopRequest(m protoreflect.MethodDescriptor) proto.Message {
	request := newMessage(m.Input())
	r := request.ProtoReflect()
	setText := func(r protoreflect.Message, name protoreflect.Name, text string) {
		if fd := r.Descriptor().Fields().ByName(name); fd != nil {
			r.Set(fd, protoreflect.ValueOfString(text))
		}
	}
	fields := r.Descriptor().Fields()
	if fd := fields.ByName("watch"); fd != nil {
		r = r.Mutable(fd).Message()
	}
	if fd := fields.ByName("operations"); fd != nil {
		operation := r.Mutable(fd).List().AppendMutable().Message()
		r = operation.Mutable(operation.Descriptor().Fields().ByName("find_one")).Message()
	}
	setText(r, "database", "shop")
	setText(r, "collection", "orders")
	if bulk, ok := request.(*mooringv1.BulkWriteRequest); ok {
		bulk.Models = []*mooringv1.WriteModel{
			{Kind: &mooringv1.WriteModel_InsertOne{InsertOne: &mooringv1.InsertOneModel{}}},
		}
	}
	return request
}

// restShop calls a path for shop.orders, and returns the status.
func restShop(t *testing.T, g *gateway, key, path string) int {
	t.Helper()
	method, path, _ := strings.Cut(path, " ")
	body, form := "{}", "application/json"
	switch {
	case method == http.MethodGet, method == http.MethodDelete:
		body = ""
	case strings.HasSuffix(path, ":import"):
		form = "application/x-ndjson"
	case strings.HasSuffix(path, ":bulkWrite"):
		body = `{"models":[{"namespace":"shop.orders","insertOne":{"document":{}}}]}`
	case strings.HasSuffix(path, ":ticket"):
		body = `{"watch":{"database":"shop"}}`
	case strings.HasSuffix(path, "transactions:run"):
		body = `{"operations":[{"findOne":{"database":"shop","collection":"orders"}}]}`
	}
	path = strings.NewReplacer("{database}", "shop", "{collection}", "orders", "{id}", "7").
		Replace(path)
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+g.Addresses().REST+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", form)
	r.Header.Set("Api-Key", key)
	resp, err := g.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestPolicyReload checks that a policy is read again when it changes, that a broken one keeps the
// old rules, and that what is refused is logged with its rule, which the client does not see.
func TestPolicyReload(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(3, 10)...)
	file := filepath.Join(t.TempDir(), "policy")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`@id("shut") forbid (principal, action, resource);`)
	g := start(t, mongo.URI(), "--policy-file", file)
	g.ready()
	find := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), waitTime)
		defer cancel()
		_, err := mooringv1.NewDocumentServiceClient(g.cc).
			Find(ctx, &mooringv1.FindRequest{Database: "db", Collection: "c"})
		return err
	}
	err := find()
	if status.Code(err) != codes.PermissionDenied || strings.Contains(err.Error(), "shut") {
		t.Errorf("find: %v", err)
	}
	g.logs("rule=shut", 1)
	write(`permit (`)
	g.Reload()
	g.logs("the policy cannot be used", 1)
	if err := find(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("find under a broken policy: %v", err)
	}
	write(`permit (principal, action, resource);`)
	g.Reload()
	g.logs("policy read", 1)
	if err := find(); err != nil {
		t.Errorf("find: %v", err)
	}
	g.stop()
}
