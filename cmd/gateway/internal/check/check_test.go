package check_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	xocsp "golang.org/x/crypto/ocsp"

	"github.com/mooringdb/mooring/cmd/gateway/internal/check"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// names replaces texts that differ from run to run.
type names []string // pairs for a strings.Replacer

func (n *names) add(server *fakemongo.Server, name string) {
	*n = append(*n, string(server.Address()), name)
}

var times = regexp.MustCompile(`\d+(\.\d+)? ms|\d{4}-\d\d-\d\d \d\d:\d\d UTC`)

func (n *names) replace(text string) string {
	text = strings.NewReplacer(*n...).Replace(text)
	return times.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasSuffix(found, "ms") {
			return "N ms"
		}
		return "TIME"
	})
}

// run checks a deployment, and returns the text for people after the replacements.
func run(t *testing.T, uri string, n names) (*check.Report, string) {
	t.Helper()
	cfg, err := connstring.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	report := check.Run(t.Context(), cfg, client.Options{})
	var text bytes.Buffer
	if err := report.Print(&text); err != nil {
		t.Fatal(err)
	}
	return report, n.replace(text.String())
}

func compare(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("Print() wrote\n%s\nwant\n%s", got, want)
	}
}

const standalone = `
  wire versions    0 to 21 (as MongoDB 7.0)
  limits           documents 16777216 bytes, messages 48000000 bytes, 100000 writes in a batch
  sessions         expire after 30 minutes without use
  round trip       N ms, connected in N ms`

// TestReplicaSet checks a string with two hosts, one of which is down; the reply of the other
// names the third.
func TestReplicaSet(t *testing.T) {
	c := fakemongo.NewCluster(t, fakemongo.ClusterConfig{TCP: true}, fakemongo.Primary,
		fakemongo.Secondary, fakemongo.Secondary)
	primary, secondary, down := c.Host(0), c.Host(1), c.Host(2)
	secondary.SetTags("dc", "west")
	secondary.Slow(2 * time.Second)
	down.Close()
	var n names
	n.add(primary.Server, "ONE")
	n.add(down.Server, "DOWN")
	n.add(secondary.Server, "TWO")
	report, text := run(t, fmt.Sprintf("mongodb://%s,%s/?readPreference=nearest&localThresholdMS=100&nonsense=1",
		primary.Address(), down.Address()), n)
	compare(t, text, `
connection string  mongodb://ONE,DOWN/?localThresholdMS=100&readPreference=nearest
hosts              ONE
                   DOWN
options            localThresholdMS=100
                   readPreference=nearest
warnings           Unsupported option 'nonsense'

ONE
  kind             RSPrimary of the set rs as ONE`+standalone+`
  tls              none
  compression      none, the option compressors is not set

DOWN
  failed           network error on DOWN (dial): connect: connection refused

TWO
  found            through other hosts, not in the connection string
  kind             RSSecondary of the set rs as TWO
  tags             {dc: west}`+standalone+`
  tls              none
  compression      none, the option compressors is not set

deployment         ReplicaSetWithPrimary, set rs
  writes           ONE
  reads            ONE (readPreference nearest)
                   too far away for it: TWO
  sessions         expire after 30 minutes without use
`)
	if report.Error != "" {
		t.Errorf("Error = %q", report.Error)
	}
}

func TestTLSAndCompression(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	server := ca.Issue(t, "127.0.0.1")
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{"hello": func(
		cmd *fakemongo.Command,
	) fakemongo.Reply {
		return fakemongo.Hello(cmd, func(b *bson.Builder) {
			b.OpenArray("compression").String("", "zlib").Close()
		})
	}})
	uri := mongo.URI() + "&tls=true&compressors=zstd,zlib&tlsCAFile=" +
		certtest.File(t, "ca.pem", ca.CertificateBlock())
	var n names
	n.add(mongo, "HOST")
	lines := func(staple []byte, max uint16, options string) string {
		t.Helper()
		mongo.UseTLS(&tls.Config{
			Certificates: []tls.Certificate{server.TLS(staple)}, MaxVersion: max,
		})
		report, text := run(t, uri+options, n)
		if report.Error != "" {
			t.Errorf("Error = %q", report.Error)
		}
		_, text, _ = strings.Cut(text, "connected in N ms\n")
		text, _, _ = strings.Cut(text, "\n\n")
		return text + "\n"
	}
	certificate := `
  certificate      CN=127.0.0.1 for 127.0.0.1
                   issued by CN=` + ca.Certificate.Subject.CommonName + `
                   expires TIME
`
	compare(t, lines(server.Respond(t, ca, xocsp.Response{}), 0, ""), `
  tls              TLS 1.3, TLS_AES_128_GCM_SHA256`+certificate+`  revocation       good until TIME, according to the server
  compression      zlib
`)
	compare(t, lines(nil, tls.VersionTLS12, "&tlsAllowInvalidHostnames=true"), `
  tls              TLS 1.2, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256`+certificate+`                   NOT VERIFIED: name
  revocation       unknown: no response stapled and no responder named
  compression      zlib
`)
	compare(t, lines(nil, 0, "&tlsInsecure=true"), `
  tls              TLS 1.3, TLS_AES_128_GCM_SHA256`+certificate+`                   NOT VERIFIED: authority, name
  revocation       not checked
  compression      zlib
`)
}

// TestUnusable checks deployments whose hosts answer, but which no operation can use.
func TestUnusable(t *testing.T) {
	c := fakemongo.NewCluster(t, fakemongo.ClusterConfig{TCP: true}, fakemongo.Primary)
	old := fakemongo.NewCluster(t, fakemongo.ClusterConfig{TCP: true, WireVersion: 5},
		fakemongo.Standalone)
	one, two := fakemongo.NewTCPServer(t, nil), fakemongo.NewTCPServer(t, nil)
	encrypted := fakemongo.NewTCPServer(t, nil)
	encrypted.UseTLS(&tls.Config{
		Certificates: []tls.Certificate{
			certtest.Authority(t, certtest.ECDSA).Issue(t, "127.0.0.1").TLS(nil),
		},
	})
	var n names
	n.add(encrypted, "TLS")
	n.add(c.Host(0).Server, "SET")
	n.add(old.Host(0).Server, "OLD")
	n.add(one, "ONE")
	n.add(two, "TWO")
	for _, row := range []struct{ name, uri, want string }{
		{
			"two standalone servers", fmt.Sprintf("mongodb://%s,%s", one.Address(), two.Address()),
			"no server can be selected: the deployment is Unknown; ONE: a Standalone cannot be one of several hosts; TWO: a Standalone cannot be one of several hosts",
		},
		{
			"wrong set", fmt.Sprintf("mongodb://%s/?replicaSet=other", c.Host(0).Address()),
			"no server can be selected: the deployment is ReplicaSetNoPrimary; SET: is a member of the set rs, not of other",
		},
		{
			"wrong set, direct connection", fmt.Sprintf("mongodb://%s/?replicaSet=other&directConnection=true", c.Host(0).Address()),
			`no server can be selected: the deployment is Single; SET: server is a member of replica set "rs", configured is "other"`,
		},
		{
			"no set", fmt.Sprintf("mongodb://%s/?replicaSet=rs", one.Address()),
			"no server can be selected: the deployment is ReplicaSetNoPrimary; ONE: a Standalone cannot be part of a deployment of kind ReplicaSetNoPrimary",
		},
		{
			"too old", fmt.Sprintf("mongodb://%s/", old.Host(0).Address()),
			"Server at OLD reports wire version 5, but this version of Mooring requires at least 6 (MongoDB 3.6).",
		},
		{
			"no file", fmt.Sprintf("mongodb://%s/?tls=true&tlsCAFile=/no/such.pem", one.Address()),
			"tlsCAFile: open /no/such.pem: no such file or directory",
		},
		{
			"no load balancer", fmt.Sprintf("mongodb://%s/?loadBalanced=true", one.Address()),
			"no host can be reached: ONE: Driver attempted to initialize in load balancing mode, but the server does not support this mode.",
		},
		{
			"all down", "mongodb://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3,127.0.0.1:4",
			"no host can be reached: network error on 127.0.0.1:1 (dial): connect: connection " +
				"refused; network error on 127.0.0.1:2 (dial): connect: connection refused; " +
				"network error on 127.0.0.1:3 (dial): connect: connection refused; and so " +
				"on, 4 in all",
		},
		{
			"unknown authority", fmt.Sprintf("mongodb://%s/?tls=true", encrypted.Address()),
			"no host can be reached: network error on TLS (tls handshake): tls: failed to verify certificate: x509: certificate signed by unknown authority",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			report, _ := run(t, row.uri, n)
			if got := n.replace(report.Error); got != row.want {
				t.Errorf("Error = %q, want %q", got, row.want)
			}
		})
	}
}

// TestLeftOut checks a string with another name for a member than the set has: the set's name
// counts.
func TestLeftOut(t *testing.T) {
	c := fakemongo.NewCluster(t, fakemongo.ClusterConfig{TCP: true}, fakemongo.Primary)
	member := c.Host(0).Address()
	report, _ := run(t, "mongodb://localhost:"+member.Port(), nil)
	if report.Error != "" || len(report.Servers) != 2 || !report.Servers[1].Discovered ||
		len(report.Deployment.LeftOut) != 1 {
		t.Fatalf("Run() = %+v", report)
	}
	want := check.LeftOut{
		Address: report.Servers[0].Address,
		Reason:  "is in the set under the name " + string(member),
	}
	if got := report.Deployment.LeftOut[0]; got != want {
		t.Errorf("LeftOut = %v, want %v", got, want)
	}
	if got := report.Deployment.Writable; len(got) != 1 || got[0] != member {
		t.Errorf("Writable = %v, want %v", got, member)
	}
}

// TestHangs checks that a host that does not answer takes no more than the time limit.
func TestHangs(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	hangs := fakemongo.NewTCPServer(t,
		fakemongo.Handlers{"hello": fakemongo.Always(fakemongo.Hang())})
	cfg, err := connstring.Parse(fmt.Sprintf("mongodb://%s,%s", hangs.Address(), mongo.Address()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second,
		errors.New("out of patience"))
	defer cancel()
	report := check.Run(ctx, cfg, client.Options{})
	if got := report.Servers[0].Error; !strings.Contains(got, "(hello)") ||
		!strings.Contains(got, "out of patience") {
		t.Errorf("Error of the host that hangs = %q", got)
	}
	if report.Servers[1].Error != "" {
		t.Errorf("Error of the other host = %q", report.Servers[1].Error)
	}
}

// TestHostileServer checks that the texts of servers do not control the terminal.
func TestHostileServer(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{"hello": func(
		cmd *fakemongo.Command,
	) fakemongo.Reply {
		return fakemongo.Hello(cmd, func(b *bson.Builder) {
			b.String("setName", "\x1b[2Jrs\ndeployment  fine")
			b.OpenDocument("tags").String("a", "\x1b[2J\r").Close()
		})
	}})
	report, text := run(t, mongo.URI()+"&connectTimeoutMS=500", nil)
	if !strings.Contains(text, "�[2Jrs�deployment") ||
		strings.ContainsAny(text+report.Error, "\x1b\r") || strings.Contains(report.Error, "\n") {
		t.Errorf("Print() wrote %q, the error is %q", text, report.Error)
	}
	refuses := fakemongo.NewTCPServer(t,
		fakemongo.Handlers{"hello": fakemongo.Always(fakemongo.Error(1, "\x1b", "no\x1b\nnever"))})
	report, text = run(t, refuses.URI(), nil)
	if strings.Contains(text+report.Error, "\x1b") || strings.Contains(report.Error, "\n") ||
		!strings.Contains(report.Error, "never") {
		t.Errorf("Print() wrote %q, the error is %q", text, report.Error)
	}
}
