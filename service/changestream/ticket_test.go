package changestream_test

import (
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/payload"
)

// TestTicket makes a ticket at one replica and opens its stream at another, until it expires.
func TestTicket(t *testing.T) {
	run(t, func(t *testing.T, d *deployment.Deployment, g *gateway) {
		watch := onShop()
		watch.Pipeline = []*mooringv1.Document{
			{Encoding: &mooringv1.Document_Json{Json: `{"$match": {"operationType": "insert"}}`}},
		}
		res, err := g.api.CreateTicket(t.Context(), &mooringv1.CreateTicketRequest{Watch: watch})
		if err != nil ||
			!res.GetExpireTime().AsTime().Equal(time.Now().Add(time.Hour).Truncate(time.Second)) {
			t.Fatalf("CreateTicket = %v, %v, want an hour", res, err)
		}
		other := start(t, d)
		w := g.watch(onShop())
		g.insert(1)
		g.command(`{"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]}`)
		first := w.read(2)
		get := func(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, path+"?timeout=5s", nil)
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			response := httptest.NewRecorder()
			h.ServeHTTP(response, r)
			return response
		}
		// After the insert and before the delete, of which the pipeline keeps nothing.
		g.insert(2)
		id := base64.RawURLEncoding.EncodeToString(w.token)
		for name, h := range map[string]http.Handler{
			"the same replica": g.rest, "another one": other.rest,
		} {
			response := get(h, res.GetUrl(), "Accept", "text/event-stream", "Last-Event-ID", id)
			body := response.Body.String()
			if response.Code != http.StatusOK ||
				!strings.Contains(body, `"documentKey":{"_id":2}`) ||
				strings.Contains(body, "delete") {
				t.Errorf("at %s: %d %s, want the insert of 2, after %q", name, response.Code, body,
					first)
			}
		}
		w.leave()
		for name, url := range map[string]string{
			"changed": res.GetUrl()[:len(res.GetUrl())-2] + "AA", "cut": res.GetUrl()[:60], "empty": "/v1/changeStreams/",
		} {
			if response := get(g.rest, url); response.Code != http.StatusUnauthorized {
				t.Errorf("%s: %d %s", name, response.Code, response.Body)
			}
		}
		time.Sleep(time.Hour) //nolint:forbidigo // time is fake
		if response := get(g.rest, res.GetUrl()); response.Code != http.StatusUnauthorized {
			t.Errorf("expired: %d %s", response.Code, response.Body)
		}
	})
}

// TestTicketShares checks that a ticket opens only so many streams at a time.
func TestTicketShares(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		var urls []string
		for range 2 {
			req := &mooringv1.CreateTicketRequest{Watch: onShop()}
			res, err := g.api.CreateTicket(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			urls = append(urls, res.GetUrl())
		}
		get := func(url string) *httptest.ResponseRecorder {
			response := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, url+"?timeout=5s", nil)
			g.rest.ServeHTTP(response, r)
			return response
		}
		var open sync.WaitGroup
		for range maxPerTicket {
			open.Go(func() {
				if response := get(urls[0]); response.Code != http.StatusOK {
					t.Errorf("a stream of the ticket: %d %s", response.Code, response.Body)
				}
			})
		}
		synctest.Wait()
		response := get(urls[0])
		if response.Code != http.StatusTooManyRequests ||
			!strings.Contains(response.Body.String(), "one ticket") {
			t.Errorf("one more: %d %s, want 429", response.Code, response.Body)
		}
		if response := get(urls[1]); response.Code != http.StatusOK {
			t.Errorf("another ticket: %d %s", response.Code, response.Body)
		}
		open.Wait()
		if response := get(urls[0]); response.Code != http.StatusOK {
			t.Errorf("after the others: %d %s", response.Code, response.Body)
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // time is fake: what is left ends
	})
}

// TestCountComesFirst checks that a stream beyond the count is refused before its request is read,
// and that one whose request is refused gives its place back.
func TestCountComesFirst(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		wrong := onShop()
		wrong.BatchSize = new(int32(-1))
		open := func() codes.Code {
			s, err := g.api.Watch(t.Context(), wrong)
			if err == nil {
				_, err = s.Recv()
			}
			return status.Code(err)
		}
		for range maxOpen + 1 {
			if got := open(); got != codes.InvalidArgument {
				t.Errorf("a wrong request: %s, want InvalidArgument", got)
			}
		}
		var held []*watch
		for open() != codes.ResourceExhausted {
			if held = append(held, g.watch(onShop())); len(held) > maxEach {
				t.Fatal("a wrong request beyond the count is read")
			}
		}
		for _, w := range held {
			w.leave()
		}
	})
}

// TestTicketsOf checks what a ticket says of its client, and whose tickets count.
func TestTicketsOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, others := changestream.NewTickets(keys, "a"), changestream.NewTickets(keys, "b")
		watch := &mooringv1.WatchRequest{Database: "db"}
		for name, id := range map[string]*caller.Identity{"nobody": nil, "ann": {
			Principal: "key:ann", Groups: []string{"key:ops"}, Claims: map[string]any{"tenant": "acme", "n": 1.5},
		}} {
			ticket, expires, err := mine.Seal(id, watch)
			if err != nil {
				t.Fatal(err)
			}
			who, opened, err := mine.Open(ticket)
			if err != nil || opened.(*mooringv1.WatchRequest).GetDatabase() != "db" {
				t.Fatalf("%s: Open = %v, %v", name, opened, err)
			}
			if (who == nil) != (id == nil) ||
				who != nil && (who.Principal != "key:ann" || !who.Expires.Equal(expires)) {
				t.Errorf("%s: the ticket is %v's", name, who)
			}
			if who != nil &&
				(!slices.Equal(who.Groups, id.Groups) || !maps.Equal(who.Claims, id.Claims)) {
				t.Errorf("%s: the ticket has the groups %v and the claims %v", name, who.Groups,
					who.Claims)
			}
			if _, _, err := others.Open(ticket); !isInvalid(err) {
				t.Errorf("%s: at another deployment: %v", name, err)
			}
		}
		tests := changestream.NewTickets(keys, "test")
		if _, _, err := tests.Open(ticketOf([]byte("\x00\x00\x00\x00\x00"))); err != nil {
			t.Errorf("a ticket of nobody for everything: %v", err)
		}
		for name, body := range map[string]string{
			"nothing": "", "a flag": "\xff" + strings.Repeat("\x00", 40),
			"too long claims":      "\x01\x00\x00\xff\xff",
			"no claims":            "\x01\x00\x00\x00\x00",
			"too long a principal": "\x01\xff\xff\x00\x00",
		} {
			if _, _, err := tests.Open(ticketOf([]byte(body))); !isInvalid(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestTicketEndsWithItsCredential checks that a ticket ends when the credential of its client does,
// if that is before its hour is over.
func TestTicketEndsWithItsCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tickets := changestream.NewTickets(keys, "a")
		for _, row := range []struct{ credential, want time.Duration }{
			{0, time.Hour}, {2 * time.Hour, time.Hour}, {10*time.Minute + time.Millisecond, 10 * time.Minute},
		} {
			id := &caller.Identity{Principal: "jwt:ann"}
			if row.credential != 0 {
				id.Expires = time.Now().Add(row.credential)
			}
			ticket, expires, err := tickets.Seal(id, &mooringv1.WatchRequest{Database: "db"})
			if err != nil || !expires.Equal(time.Now().Add(row.want)) {
				t.Errorf("a credential of %s: the ticket ends at %s, %v; want %s", row.credential,
					expires, err, row.want)
			}
			time.Sleep(row.want - time.Second) //nolint:forbidigo // time is fake
			if who, _, err := tickets.Open(ticket); err != nil || !who.Expires.Equal(expires) {
				t.Errorf("a credential of %s: Open a second before = %v, %v", row.credential, who,
					err)
			}
			time.Sleep(time.Second) //nolint:forbidigo // time is fake
			if _, _, err := tickets.Open(ticket); !isInvalid(err) {
				t.Errorf("a credential of %s: Open at the end = %v", row.credential, err)
			}
		}
	})
}

func isInvalid(err error) bool {
	e, ok := errors.AsType[*caller.Error](err)
	return ok && e.Problem == caller.Invalid
}

func TestTicketRefusals(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		large := payload.NewDocument(bson.NewBuilder(nil).String("x", strings.Repeat("y", 5000)).
			Finish())
		for name, test := range map[string]struct {
			req   *mooringv1.CreateTicketRequest
			field string
		}{
			"no request":        {&mooringv1.CreateTicketRequest{}, "watch"},
			"a session":         {&mooringv1.CreateTicketRequest{Watch: &mooringv1.WatchRequest{Session: new("x")}}, "watch.session"},
			"no database":       {&mooringv1.CreateTicketRequest{Watch: &mooringv1.WatchRequest{Collection: new("c")}}, "watch.database"},
			"a wrong request":   {&mooringv1.CreateTicketRequest{Watch: &mooringv1.WatchRequest{BatchSize: new(int32(-1))}}, "watch.batchSize"},
			"too large for URL": {&mooringv1.CreateTicketRequest{Watch: &mooringv1.WatchRequest{Pipeline: []*mooringv1.Document{large}}}, "watch"},
		} {
			_, err := g.api.CreateTicket(t.Context(), test.req)
			if status.Code(err) != codes.InvalidArgument ||
				!strings.Contains(err.Error(), test.field) {
				t.Errorf("%s: %v, want InvalidArgument of %s", name, err, test.field)
			}
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "mooring-session", "x")
		if _, err := g.api.CreateTicket(ctx,
			&mooringv1.CreateTicketRequest{Watch: onShop()}); status.Code(
			err) != codes.InvalidArgument {
			t.Errorf("a session in the metadata: %v", err)
		}
	})
}

// TestLargeTicket refuses a ticket of a request whose JSON is charged for.
func TestLargeTicket(t *testing.T) {
	run(t, func(t *testing.T, _ *deployment.Deployment, g *gateway) {
		watch := onShop()
		watch.ResumeAfter = &mooringv1.Document{Encoding: &mooringv1.Document_Json{
			Json: `{"_data": "` + strings.Repeat("8", 200_000) + `"}`,
		}}
		_, err := g.api.CreateTicket(t.Context(), &mooringv1.CreateTicketRequest{Watch: watch})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("CreateTicket = %v, want INVALID_ARGUMENT", err)
		}
	})
}
