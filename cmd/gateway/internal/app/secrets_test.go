package app_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/issuertest"
)

// rotations says how TestEverySecretRotates changes each secret of config.Files: the steps run in
// this order, under load. The certificates of replicas and the tickets of change streams are made
// of the handle keys; the keys of the issuer of tokens are in no option.
var rotations = []struct {
	options []string
	change  func(w *secretWorld)
}{
	{nil, func(w *secretWorld) { w.issuer.Rotate(w.t) }}, // which is noticed late: see the last step
	{[]string{"handle.keys"}, (*secretWorld).changeHandleKeys},
	{[]string{"idempotency.key"}, (*secretWorld).changeIdempotencyKey},
	{[]string{"auth.apiKeys"}, (*secretWorld).changeAPIKeys},
	{[]string{"policy.file"}, (*secretWorld).changePolicy},
	{[]string{"tls.certificateFile", "tls.keyFile"}, (*secretWorld).changeCertificate},
	{[]string{"tls.clientAuthorityFile"}, (*secretWorld).changeClientAuthority},
	{[]string{"uri", "mongodb.username", "mongodb.password"}, (*secretWorld).changeUsers},
	{[]string{"mongodb.tokenFile"}, (*secretWorld).changeToken},
	{nil, (*secretWorld).changeIssuer},
}

// notRotated has the other options of config.Files, and why they are not changed.
var notRotated = map[string]string{
	"config":          "TestReloadUnderLoad changes it",
	"mongodb.options": "has what follows the ? of the connection string, which needs a restart",
	"addressesFile":   "is written",
	"audit.file":      "is written",
}

// secretWorld holds two replicas before a MongoDB server, a third gateway before another one, the
// files of their secrets, and clients.
type secretWorld struct {
	t       *testing.T
	dir     string
	mongo   *fakemongo.Server // users log in by SCRAM
	cloud   *fakemongo.Server // access tokens log in
	tokens  fakemongo.OIDC
	issuer  *issuertest.Issuer
	a, b, c *gateway

	pool           *x509.CertPool // the authorities that clients trust
	servers        [2]*certtest.Pair
	clients        [2]*certtest.Pair // authorities of client certificates
	handleKeys     [2]string
	apiKeys, lines [2]string
	key, token     atomic.Pointer[string]
	certificate    atomic.Pointer[tls.Certificate]
	sent           [6]atomic.Int64
	stop           context.CancelFunc
	group          sync.WaitGroup
	barrier        chan struct{} // closed when all pings of a burst have arrived; guarded by mu
	missing        int           // pings of the burst; guarded by mu
	mu             sync.Mutex
}

// TestEverySecretRotates changes every secret that the gateway has, one after the other, while REST
// and gRPC clients call two replicas, read pages that one forwards to the other, and read a stream
// that is open all the time: no request is lost, and the old secrets end.
func TestEverySecretRotates(t *testing.T) {
	var covered []string
	for _, r := range rotations {
		covered = append(covered, r.options...)
	}
	covered = slices.AppendSeq(covered, maps.Keys(notRotated))
	slices.Sort(covered)
	if want := slices.Sorted(slices.Values(config.Files())); !slices.Equal(covered, want) {
		t.Fatalf("the test changes, or has a reason not to change, %q; the options are %q", covered,
			want)
	}

	w := newSecretWorld(t)
	w.progress()
	for _, r := range rotations {
		r.change(w)
		w.progress()
	}
	w.stop()
	w.group.Wait()
	for kind := range w.sent {
		t.Logf("kind %d: %d", kind, w.sent[kind].Load())
	}
	for _, g := range []*gateway{w.a, w.b, w.c} {
		g.stop()
		for _, secret := range []string{
			*w.key.Load(), *w.token.Load(), w.handleKeys[0], w.handleKeys[1],
		} {
			if strings.Contains(g.log.String(), secret) {
				t.Error("the log has a secret")
			}
		}
	}
}

func newSecretWorld(t *testing.T) *secretWorld {
	w := &secretWorld{
		barrier: make(chan struct{}), missing: 1, // the first ping is of no burst
		t: t, dir: t.TempDir(), pool: x509.NewCertPool(),
		handleKeys: [2]string{randomKey(t), randomKey(t)},
		clients: [2]*certtest.Pair{
			certtest.ForeignAuthority(t, certtest.ECDSA), certtest.ForeignAuthority(t, certtest.RSA),
		},
	}
	for i, ca := range []*certtest.Pair{
		certtest.Authority(t, certtest.ECDSA), certtest.Authority(t, certtest.RSA),
	} {
		w.servers[i] = ca.Issue(t, "127.0.0.1")
		w.pool.AddCert(ca.Certificate)
		w.apiKeys[i], w.lines[i] = newKey(t, "shop", time.Time{})
	}
	var url string
	w.issuer, url = newIssuer(t)
	w.key.Store(&w.apiKeys[0])
	w.token.Store(new(w.issuer.Token(t, "ann")))
	w.certificate.Store(new(w.clients[0].Issue(t, "client").TLS(nil)))

	w.mongo = w.newServer()
	w.mongo.RequireAuth(users("app-1", "bob-1"))
	w.cloud = w.newServer()
	w.cloud.RequireAuth(&fakemongo.Auth{SASL: map[string]func(*fakemongo.Command) fakemongo.SASL{
		"MONGODB-OIDC": w.tokens.SASL,
	}})
	w.tokens.Accept("hunter2-token-1", "gateway")

	common := []string{
		"--auth-api-keys-file", w.write("api-keys", w.lines[0]),
		"--auth-jwt-issuer", url, "--auth-jwt-audience", issuertest.Audience,
		"--auth-certificate-name=commonName", "--policy-file", w.write("policy", policyOf(1)),
		"--tls-certificate-file", w.write("tls.crt", block(w.servers[0].CertificateBlock())),
		"--tls-key-file", w.write("tls.key", block(w.servers[0].KeyBlock(t))),
		"--tls-client-authority-file", w.write("client-ca", block(w.clients[0].CertificateBlock())),
		"--connections-max-age=1s", "--handle-keys-file", w.write("handle-keys", w.handleKeys[0]),
		"--idempotency-key-file", w.write("idempotency-key", w.handleKeys[0]),
	}
	begin := func(options ...string) *gateway {
		return startOptions(t, func(g *gateway) *slog.Logger {
			return slog.New(slog.NewTextHandler(&g.log, nil))
		}, append(options, common...)...)
	}
	w.b = begin("--uri", w.mongo.URI(), "--replica-address=127.0.0.1:0",
		"--mongodb-username-file", w.write("username", "bob-1"),
		"--mongodb-password-file", w.write("password", "hunter2-bob-1"))
	w.a = begin("--uri-file", w.write("uri", w.uriOf("app-1")), "--replica-address=127.0.0.1:0",
		"--replica-peers", w.b.Addresses().Replica)
	w.c = begin("--uri", w.cloud.URI()+"&authMechanism=MONGODB-OIDC",
		"--mongodb-token-file", w.write("token", "hunter2-token-1"))
	w.load()
	return w
}

// users returns who may log in: the password of each is made of its name.
func users(names ...string) *fakemongo.Auth {
	a := &fakemongo.Auth{}
	for _, name := range names {
		a.Users = append(a.Users, fakemongo.User{Name: name, Password: "hunter2-" + name})
	}
	return a
}

func (w *secretWorld) uriOf(user string) string {
	return strings.Replace(w.mongo.URI(), "mongodb://", "mongodb://"+user+":hunter2-"+user+"@", 1)
}

func block(b *pem.Block) string { return string(pem.EncodeToMemory(b)) }

// policyOf returns that many rules, which permit all that the clients do.
func policyOf(rules int) string {
	return `@commands("ping") permit (principal, action, resource);` + strings.Repeat(
		`forbid (principal, action in Action::"operate", resource);`, rules-1)
}

// newServer starts a server with documents. Its change streams have no changes, and a ping waits
// for the others of its burst.
func (w *secretWorld) newServer() *fakemongo.Server {
	const changes = 1 << 40
	s := fakemongo.NewTCPServer(w.t, nil)
	s.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	s.SetDocuments("db.long", fakemongo.Numbered(0, 100_000, 1)...)
	s.Handle("aggregate", fakemongo.Always(fakemongo.CursorReply(changes, "db.c", "firstBatch")))
	s.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		more, _ := cmd.Body.Lookup("getMore")
		switch id, _ := more.Int64(); {
		case cmd.Name == "ping":
			<-w.arrived()
		case id == changes:
			return fakemongo.CursorReply(changes, "db.c", "nextBatch").After(20 * time.Millisecond)
		}
		return next(cmd)
	})
	return s
}

// release lets a burst go that is not complete, which fails the test.
func (w *secretWorld) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missing > 0 {
		w.t.Errorf("%d calls of a burst did not come", w.missing)
		w.missing = 0
		close(w.barrier)
	}
}

func (w *secretWorld) arrived() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missing--; w.missing == 0 {
		close(w.barrier)
	}
	return w.barrier
}

// newConnections makes more calls at once than there are connections to a server, so that the
// gateway has to log in.
func (w *secretWorld) newConnections(g *gateway, s *fakemongo.Server) {
	w.t.Helper()
	n := s.OpenConnections() + 2
	w.mu.Lock()
	w.barrier, w.missing = make(chan struct{}), n
	w.mu.Unlock()
	// One that does not come, as on a slow machine, must not hold the others for ever.
	held := time.AfterFunc(time.Minute, w.release)
	defer held.Stop()
	var burst sync.WaitGroup
	for range n {
		burst.Go(func() {
			c := w.http(nil)
			c.Timeout = 2 * time.Minute
			code, body, err := w.call(w.t.Context(), c, g, http.MethodPost,
				"/v1/databases/db:runCommand", `{"command":{"ping":1}}`, *w.key.Load())
			if err != nil || code != http.StatusOK {
				w.t.Errorf("a call of a burst: %d %s, %v", code, body, err)
			}
		})
	}
	burst.Wait()
}

// http returns a client, which presents a certificate if there is one.
func (w *secretWorld) http(own *tls.Certificate) *http.Client {
	secure := &tls.Config{RootCAs: w.pool, MinVersion: tls.VersionTLS12}
	if own != nil {
		secure.Certificates = []tls.Certificate{*own}
	}
	return &http.Client{Timeout: waitTime, Transport: &http.Transport{
		TLSClientConfig: secure, DisableKeepAlives: true,
	}}
}

func (w *secretWorld) call(
	ctx context.Context, c *http.Client, g *gateway, method, path, body, key string,
) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+g.Addresses().REST+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// load starts the clients.
func (w *secretWorld) load() {
	var ctx context.Context
	ctx, w.stop = context.WithCancel(w.t.Context())
	const find = "/v1/databases/db/collections/c/documents:find"
	kept := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: w.pool, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}
	w.t.Cleanup(kept.CloseIdleConnections)
	rest := func(c *http.Client, g *gateway, secret *atomic.Pointer[string]) func(
		context.Context,
	) error {
		return func(ctx context.Context) error {
			code, body, err := w.call(ctx, c, g, http.MethodPost, find, `{"batchSize":100}`,
				*secret.Load())
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%d %s", code, body)
			}
			return err
		}
	}
	w.run(ctx, 0, rest(w.http(nil), w.a, &w.key))
	w.run(ctx, 1, rest(&http.Client{Transport: kept, Timeout: waitTime}, w.b, &w.token))
	w.run(ctx, 2, rest(w.http(nil), w.c, &w.key))
	byCertificate := w.dial(w.a, func(c *tls.Config) {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return w.certificate.Load(), nil
		}
	})
	w.run(ctx, 3, func(ctx context.Context) error {
		_, err := mooringv1.NewDocumentServiceClient(byCertificate).
			Find(ctx, &mooringv1.FindRequest{Database: "db", Collection: "c"})
		return err
	})
	atA, atB := w.dial(w.a, nil), w.dial(w.b, nil)
	w.run(ctx, 4, func(ctx context.Context) error { return w.pages(ctx, atA, atB) })
	w.group.Go(func() { w.stream(ctx, atB) })
}

// dial returns a gRPC connection.
func (w *secretWorld) dial(g *gateway, change func(*tls.Config)) *grpc.ClientConn {
	secure := &tls.Config{RootCAs: w.pool, MinVersion: tls.VersionTLS12}
	if change != nil {
		change(secure)
	}
	cc, err := grpc.NewClient("passthrough:///"+g.Addresses().GRPC, grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func (w *secretWorld) run(ctx context.Context, kind int, one func(context.Context) error) {
	w.group.Go(func() {
		for ctx.Err() == nil {
			if err := one(context.WithoutCancel(ctx)); err != nil {
				w.t.Errorf("a request of kind %d failed: %v", kind, err)
				return
			}
			w.sent[kind].Add(1)
		}
	})
}

func (w *secretWorld) signed(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+*w.key.Load())
}

// pages opens a cursor at one replica, and reads its pages from the other one.
func (w *secretWorld) pages(ctx context.Context, atA, atB *grpc.ClientConn) error {
	page, err := mooringv1.NewDocumentServiceClient(atA).Find(w.signed(ctx), &mooringv1.FindRequest{
		Database: "db", Collection: "c", BatchSize: new(int32(10)),
	})
	if err != nil {
		return err
	}
	read, token := len(page.GetDocuments()), page.GetCursor()
	for token != "" {
		page, err := mooringv1.NewCursorServiceClient(atB).
			NextPage(w.signed(ctx), &mooringv1.NextPageRequest{Cursor: token})
		if err != nil {
			return fmt.Errorf("after %d documents: %w", read, err)
		}
		read, token = read+len(page.GetDocuments()), page.GetCursor()
	}
	if read != 50 {
		return fmt.Errorf("read %d documents, want 50", read)
	}
	return nil
}

// stream reads one stream, slowly, until ctx ends. Its credential is a token: a stream ends with
// its API key.
func (w *secretWorld) stream(ctx context.Context, cc *grpc.ClientConn) {
	own := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+*w.token.Load())
	s, err := mooringv1.NewDocumentServiceClient(cc).StreamFind(own, &mooringv1.StreamFindRequest{
		Database: "db", Collection: "long", BatchSize: new(int32(10)),
	})
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for err == nil {
		_, err = s.Recv()
		w.sent[5].Add(1)
		<-pace.C
	}
	if ctx.Err() == nil {
		w.t.Errorf("the stream ended: %v", err)
	}
}

// progress waits until each kind has sent some more requests.
func (w *secretWorld) progress() {
	w.t.Helper()
	for kind := range w.sent {
		goal := w.sent[kind].Load() + 3
		w.a.until(func() (bool, string) {
			return w.sent[kind].Load() >= goal || w.t.Failed(),
				fmt.Sprintf("kind %d makes no progress", kind)
		})
	}
	if w.t.Failed() {
		w.stop()
		w.group.Wait()
		w.t.FailNow()
	}
}

// write writes a file of the directory as a mounted Secret changes: at once.
func (w *secretWorld) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// reload makes all gateways read their files.
func (w *secretWorld) reload() {
	for _, g := range []*gateway{w.a, w.b, w.c} {
		g.Reload()
	}
}

// read makes all gateways read their files, until each log has a text.
func (w *secretWorld) read(text string) {
	w.t.Helper()
	w.reload()
	for _, g := range []*gateway{w.a, w.b, w.c} {
		g.logs(text, 1)
	}
}

// everywhere waits until done is true of each gateway.
func (w *secretWorld) everywhere(what string, done func(g *gateway) bool) {
	w.t.Helper()
	for _, g := range []*gateway{w.a, w.b, w.c} {
		g.until(func() (bool, string) { return done(g), what })
	}
}

// answers reports whether a call with these credentials is answered with a status; 0: by no
// response.
func (w *secretWorld) answers(g *gateway, own *tls.Certificate, key string, want int) bool {
	code, _, err := w.call(w.t.Context(), w.http(own), g, http.MethodGet,
		"/v1/databases/db/collections/c/documents", "", key)
	return want == 0 && err != nil || code == want && err == nil
}

// ticket returns the path of a change stream for a page.
func (w *secretWorld) ticket() string {
	w.t.Helper()
	_, body, err := w.call(w.t.Context(), w.http(nil), w.a, http.MethodPost,
		"/v1/changeStreams:ticket", `{"watch":{"database":"db"}}`, *w.key.Load())
	var ticket struct{ URL string }
	if err != nil || json.Unmarshal([]byte(body), &ticket) != nil || ticket.URL == "" {
		w.t.Fatalf("no ticket: %s, %v", body, err)
	}
	return ticket.URL
}

// opens returns the status with which a ticket's stream begins at the other replica.
func (w *secretWorld) opens(ticket string) int {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.b.Addresses().REST+ticket, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := w.http(nil).Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// next reads a page of a cursor at the second replica, and returns the status.
func (w *secretWorld) next(token string) int {
	w.t.Helper()
	code, _, err := w.call(w.t.Context(), w.http(nil), w.b, http.MethodPost, "/v1/cursors:next",
		`{"cursor":"`+token+`"}`, *w.key.Load())
	if err != nil {
		w.t.Fatal(err)
	}
	return code
}

func (w *secretWorld) changeHandleKeys() {
	_, body, err := w.call(w.t.Context(), w.http(nil), w.a, http.MethodPost,
		"/v1/databases/db/collections/c/documents:find", `{"batchSize":10}`, *w.key.Load())
	var page struct{ Cursor string }
	if err != nil || json.Unmarshal([]byte(body), &page) != nil || page.Cursor == "" {
		w.t.Fatalf("no cursor: %s, %v", body, err)
	}
	ticket := w.ticket()
	before, after := w.handleKeys[0], w.handleKeys[1]
	w.write("handle-keys", before+"\n"+after)
	w.read(`msg="handle keys read" file=` + w.dir + "/handle-keys keys=2")
	w.progress()
	w.write("handle-keys", after+"\n"+before+"\n"+randomKey(w.t)) // three, so that the log tells it
	w.read(`msg="handle keys read" file=` + w.dir + "/handle-keys keys=3")
	w.progress()
	w.progress() // no cursor of the old key is being read any more
	if code := w.next(page.Cursor); code != http.StatusOK {
		w.t.Errorf("a page with a token of the old key: %d", code)
	}
	if code := w.opens(ticket); code != http.StatusOK {
		w.t.Errorf("a ticket of the old key: %d", code)
	}
	w.write("handle-keys", after)
	w.read(`msg="handle keys read" file=` + w.dir + "/handle-keys keys=1")
	if code := w.next(page.Cursor); code != http.StatusNotFound {
		w.t.Errorf("a token of a key that is gone: %d, want 404", code)
	}
	if code := w.opens(ticket); code != http.StatusUnauthorized {
		w.t.Errorf("a ticket of a key that is gone: %d, want 401", code)
	}
	if code := w.opens(w.ticket()); code != http.StatusOK {
		w.t.Errorf("a ticket of the new key: %d", code)
	}
}

// changeIdempotencyKey announces a change. service/transaction has a test of what clients see then.
func (w *secretWorld) changeIdempotencyKey() {
	w.write("idempotency-key", w.handleKeys[1])
	w.read(`msg="the idempotency key cannot be used: keeping the old one"`)
	w.write("idempotency-key", w.handleKeys[0]+"\n2100-01-01T12:00:00Z "+w.handleKeys[1])
	w.read(`msg="idempotency key read" file=` + w.dir + "/idempotency-key keys=2")
	w.progress()
}

func (w *secretWorld) changeAPIKeys() {
	w.write("api-keys", w.lines[0]+"\n"+w.lines[1])
	w.reload()
	w.everywhere("the new API key does not count", func(g *gateway) bool {
		return w.answers(g, nil, w.apiKeys[1], http.StatusOK)
	})
	w.progress()
	w.key.Store(&w.apiKeys[1])
	w.progress() // no request with the old key is on its way any more
	w.write("api-keys", w.lines[1])
	w.reload()
	w.everywhere("the old API key counts", func(g *gateway) bool {
		return w.answers(g, nil, w.apiKeys[0], http.StatusUnauthorized)
	})
}

func (w *secretWorld) changePolicy() {
	w.write("policy", policyOf(7))
	w.read(`msg="policy read" file=` + w.dir + "/policy rules=7")
}

func (w *secretWorld) changeCertificate() {
	w.write("tls.crt", block(w.servers[1].CertificateBlock()))
	w.reload() // the key does not fit yet
	w.a.logs("keeping the old one", 1)
	w.progress()
	w.write("tls.key", block(w.servers[1].KeyBlock(w.t)))
	w.reload()
	w.everywhere("new connections get the old certificate", func(g *gateway) bool {
		conn, err := (&tls.Dialer{
			Config: &tls.Config{RootCAs: w.pool, MinVersion: tls.VersionTLS12},
		}).
			DialContext(w.t.Context(), "tcp", g.Addresses().REST)
		if err != nil {
			w.t.Fatal(err)
		}
		defer conn.Close()
		return conn.(*tls.Conn).
			ConnectionState().PeerCertificates[0].Equal(w.servers[1].Certificate)
	})
}

func (w *secretWorld) changeClientAuthority() {
	before, after := *w.certificate.Load(), w.clients[1].Issue(w.t, "client").TLS(nil)
	second := block(w.clients[1].CertificateBlock())
	w.write("client-ca", block(w.clients[0].CertificateBlock())+second)
	w.reload()
	w.everywhere("a certificate of the new authority does not count", func(g *gateway) bool {
		return w.answers(g, &after, "", http.StatusOK)
	})
	w.progress()
	w.certificate.Store(&after)
	w.progress()
	w.write("client-ca", second)
	w.reload()
	w.everywhere("a certificate of the old authority counts", func(g *gateway) bool {
		return w.answers(g, &before, "", 0)
	})
}

// changeUsers changes the users of the deployment as operators do: the new ones are made before
// the gateway has them, and the old ones dropped afterwards.
func (w *secretWorld) changeUsers() {
	w.mongo.RequireAuth(users("app-1", "bob-1", "app-2", "bob-2"))
	w.write("uri", w.uriOf("app-2"))
	w.write("username", "bob-2")
	w.write("password", "hunter2-bob-2")
	w.reload()
	for g, user := range map[*gateway]string{w.a: "admin.app-2", w.b: "admin.bob-2"} {
		g.until(func() (bool, string) {
			w.newConnections(g, w.mongo)
			return slices.Contains(w.mongo.LoggedIn(), user), user + " has not logged in"
		})
	}
	w.mongo.RequireAuth(users("app-2", "bob-2"))
	known := len(w.mongo.LoggedIn())
	w.newConnections(w.a, w.mongo)
	w.newConnections(w.b, w.mongo)
	if now := w.mongo.LoggedIn()[known:]; !slices.Contains(now, "admin.app-2") ||
		!slices.Contains(now, "admin.bob-2") {
		w.t.Errorf("after the old users have gone, %q have logged in", now)
	}
}

func (w *secretWorld) changeToken() {
	w.tokens.Accept("hunter2-token-2", "gateway-2")
	w.write("token", "hunter2-token-2")
	w.tokens.Revoke("hunter2-token-1")
	w.newConnections(w.c, w.cloud)
	if now := w.cloud.LoggedIn(); !slices.Contains(now, "$external.gateway-2") {
		w.t.Errorf("logged in are %q", now)
	}
}

func (w *secretWorld) changeIssuer() {
	token := w.issuer.Token(w.t, "ann")
	w.everywhere("a token of the new key does not count", func(g *gateway) bool {
		return w.answers(g, nil, token, http.StatusOK)
	})
	w.token.Store(&token)
	w.progress() // no request with the old token is on its way any more
	w.issuer.Withdraw()
}
