package app_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestNoServer checks what clients and the log are told of servers none of which can be selected.
// With credentials, clients get neither addresses nor the servers' words, on gRPC and REST, in
// pages and streams, unless an option shows them. The log has both: a server without a login has
// nothing of a client's in its words.
func TestNoServer(t *testing.T) {
	const words = "the vault is shut"
	key, line := newKey(t, "shop", time.Time{})
	for _, row := range []struct {
		name    string
		options []string
		down    bool // connections are closed; else hello is refused
		shown   bool
	}{
		{"refused hello", []string{"--auth-api-keys", line}, false, false},
		{"closed connections", []string{"--auth-api-keys", line}, true, false},
		{"hidden", []string{"--errors-server-texts=hide"}, false, false},
		{"shown", []string{"--auth-api-keys", line, "--errors-server-texts=show"}, false, true},
		{"no credentials", nil, false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			refuse := fakemongo.Always(fakemongo.Error(8000, "AtlasError", words))
			mongo := fakemongo.NewTCPServer(t,
				fakemongo.Handlers{"hello": refuse, "isMaster": refuse})
			mongo.SetDown(row.down)
			g := start(t, mongo.URI()+"&serverSelectionTimeoutMS=100", row.options...)
			defer g.stop()
			answers := map[string]string{}
			for name, path := range map[string]string{
				"REST find": "documents:find", "REST stream": "documents:streamFind",
			} {
				_, answers[name] = g.do(http.MethodPost, "/v1/databases/db/collections/c/"+path,
					"{}",
					http.Header{
						"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"},
					})
			}
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
			answers["gRPC find"], answers["gRPC stream"] = g.finds(ctx)
			secrets := []string{mongo.Address().String(), words}
			if row.down {
				secrets = []string{mongo.Address().String(), "network error"}
			}
			for name, text := range answers {
				if !strings.Contains(text, "NoSuitableServer") {
					t.Errorf("%s: %s", name, text)
				}
				for _, secret := range secrets {
					if strings.Contains(text, secret) != row.shown {
						t.Errorf("%s: %q is shown: %v; want %v: %s", name, secret, !row.shown,
							row.shown, text)
					}
				}
			}
			failed := ""
			for _, line := range strings.Split(g.log.String(), "\n") {
				if strings.Contains(line, "request failed") {
					failed = line
				}
			}
			for _, secret := range secrets {
				if !strings.Contains(failed, secret) {
					t.Errorf("the log has no %q: %s", secret, failed)
				}
			}
		})
	}
}

// finds makes a find and a stream of one over gRPC, and returns their statuses with the details.
func (g *gateway) finds(ctx context.Context) (find, stream string) {
	g.t.Helper()
	text := func(err error) string {
		details, marshalErr := protojson.Marshal(status.Convert(err).Proto())
		if marshalErr != nil {
			g.t.Fatal(marshalErr)
		}
		return string(details)
	}
	c := mooringv1.NewDocumentServiceClient(g.cc)
	_, err := c.Find(ctx, &mooringv1.FindRequest{Database: "db", Collection: "c"})
	find = text(err)
	s, err := c.StreamFind(ctx, &mooringv1.StreamFindRequest{Database: "db", Collection: "c"})
	if err == nil {
		_, err = s.Recv()
	}
	return find, text(err)
}
