package aws_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/auth/aws"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/memhttp"
)

// cloud plays AWS's endpoints, and the environment of a process there.
type cloud struct {
	server *fakemongo.AWS // knows all credentials that the endpoints gave
	http   *memhttp.Server

	mu       sync.Mutex
	env      map[string]string
	files    map[string]string
	lifetime time.Duration // of credentials
	epoch    bool          // STS says when they expire in seconds since 1970
	flat     bool          // STS answers as the specification shows it, not nested
	issued   int
	asked    []string // the endpoints that were asked
	session  string   // RoleSessionName of the last request to STS
	answer   http.HandlerFunc
}

const (
	jwt       = "eyJhbGciOiJSUzI1NiJ9.the-web/identity+token.c2ln"
	imdsToken = "the-imds-session-token"
	podToken  = "the-pod-authorization-token"
)

func newCloud(t *testing.T) *cloud {
	c := &cloud{
		server: newServer(), env: map[string]string{}, lifetime: time.Hour,
		files: map[string]string{"/token": jwt + "\n", "/pod": podToken + "\n"},
	}
	c.http = memhttp.New(t, c, "sts.amazonaws.com")
	return c
}

// source returns a source with an empty cache, as a new client has it.
func (c *cloud) source() *aws.Source { return aws.NewSource(c.config()) }

func (c *cloud) config() aws.Config {
	return aws.Config{Getenv: c.getenv, ReadFile: c.readFile, Transport: c.http}
}

func (c *cloud) getenv(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.env[name]
}

// setenv sets the variables, and no others.
func (c *cloud) setenv(pairs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.env = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		c.env[pairs[i]] = pairs[i+1]
	}
}

func (c *cloud) readFile(name string) ([]byte, error) {
	if text, ok := c.files[name]; ok {
		return []byte(text), nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// requests returns the endpoints that were asked since the last call.
func (c *cloud) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = nil
	return asked
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, r.Method+" "+r.Host+r.URL.Path)
	if c.answer != nil {
		c.mu.Unlock()
		_ = r.ParseForm() // net/http notices that a client has gone only after its body was read
		defer c.mu.Lock()
		c.answer(w, r)
		return
	}
	var err error
	switch r.Host {
	case "sts.amazonaws.com":
		err = c.sts(w, r)
	case "169.254.170.2", "169.254.170.23":
		err = c.agent(w, r)
	case "169.254.169.254":
		err = c.metadata(w, r)
	default:
		err = errors.New("there is no such host")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (c *cloud) issue() map[string]any {
	c.issued++
	credentials := aws.Credentials{
		AccessKeyID:     fmt.Sprintf("ASIA%d", c.issued),
		SecretAccessKey: fmt.Sprintf("issued-secret-%d", c.issued),
		SessionToken:    fmt.Sprintf("issued-token-%d", c.issued),
	}
	know(c.server, credentials)
	return map[string]any{
		"Code": "Success", "AccessKeyId": credentials.AccessKeyID, "SecretAccessKey": credentials.SecretAccessKey,
		"Token": credentials.SessionToken, "Expiration": time.Now().Add(c.lifetime).UTC().Format(time.RFC3339),
	}
}

func (c *cloud) sts(w http.ResponseWriter, r *http.Request) error {
	c.session = r.PostFormValue("RoleSessionName")
	if r.Method != "POST" || r.TLS == nil || r.URL.RawQuery != "" ||
		r.Header.Get("Accept") != "application/json" ||
		r.PostFormValue("Action") != "AssumeRoleWithWebIdentity" ||
		r.PostFormValue("Version") != "2011-06-15" ||
		r.PostFormValue("RoleArn") != "arn:aws:iam::1:role/r" ||
		r.PostFormValue("WebIdentityToken") != jwt || c.session == "" {
		return fmt.Errorf("refused: %v", r.PostForm)
	}
	v := c.issue()
	v["SessionToken"] = v["Token"]
	delete(v, "Token")
	delete(v, "Code")
	if c.epoch {
		v["Expiration"] = float64(time.Now().Add(c.lifetime).Unix()) + 0.25
	}
	answer := map[string]any{"Credentials": v}
	if !c.flat {
		answer = map[string]any{
			"AssumeRoleWithWebIdentityResponse": map[string]any{"AssumeRoleWithWebIdentityResult": answer},
		}
	}
	return json.NewEncoder(w).Encode(answer)
}

func (c *cloud) agent(w http.ResponseWriter, r *http.Request) error {
	want := c.env["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
	if c.env["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] != "" {
		want = podToken
	}
	if r.Method != "GET" || r.URL.Path != "/v2/credentials/1" ||
		r.Header.Get("Authorization") != want {
		return fmt.Errorf("refused: %s %s %v", r.Method, r.URL, r.Header)
	}
	return json.NewEncoder(w).Encode(c.issue())
}

func (c *cloud) metadata(w http.ResponseWriter, r *http.Request) error {
	const roles = "/latest/meta-data/iam/security-credentials/"
	switch {
	case r.Method == "PUT" && r.URL.Path == "/latest/api/token" &&
		r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") == "30":
		fmt.Fprint(w, imdsToken)
	case r.Method != "GET" || r.Header.Get("X-Aws-Ec2-Metadata-Token") != imdsToken:
		return fmt.Errorf("refused: %s %s %v", r.Method, r.URL, r.Header)
	case r.URL.Path == roles:
		fmt.Fprint(w, "my-role\nanother\n")
	case r.URL.Path == roles+"my-role":
		return json.NewEncoder(w).Encode(c.issue())
	default:
		return errors.New("not found")
	}
	return nil
}
