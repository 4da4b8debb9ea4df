package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/auth/internal/fetch"
)

const (
	stsURL = "https://sts.amazonaws.com/"
	ecsURL = "http://169.254.170.2/"
	ec2URL = "http://169.254.169.254/"
)

// fetch asks the one endpoint that the environment points to. There is no falling through from one
// that fails to the next: it would give a process the rights of another.
func (s *Source) fetch(ctx context.Context) (Credentials, error) {
	env := s.config.Getenv
	switch {
	case env("AWS_WEB_IDENTITY_TOKEN_FILE") != "" && env("AWS_ROLE_ARN") != "":
		return s.webIdentity(ctx)
	case env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "":
		relative := strings.TrimLeft(env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"), "/")
		return s.container(ctx, ecsURL+relative)
	case env("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		full := env("AWS_CONTAINER_CREDENTIALS_FULL_URI")
		if err := checkContainerURL(full); err != nil {
			return Credentials{}, fmt.Errorf("AWS_CONTAINER_CREDENTIALS_FULL_URI: %w", err)
		}
		return s.container(ctx, full)
	}
	return s.instance(ctx)
}

// webIdentity exchanges an OpenID Connect token for a role's credentials. The token goes in the
// body: URLs end in logs.
func (s *Source) webIdentity(ctx context.Context) (Credentials, error) {
	token, err := s.config.ReadFile(s.config.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE"))
	if err != nil {
		return Credentials{}, fmt.Errorf("AWS_WEB_IDENTITY_TOKEN_FILE: %w", err)
	}
	jwt := strings.TrimSpace(string(token))
	session := s.config.Getenv("AWS_ROLE_SESSION_NAME")
	if session == "" {
		session = sessionName()
	}
	body, err := fetch.Do(ctx, s.config.Transport, fetch.Request{
		Method: "POST", URL: stsURL, Proxied: true, Timeout: timeout,
		Header: map[string]string{"Accept": "application/json"},
		Form: url.Values{
			"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
			"RoleSessionName": {session}, "RoleArn": {s.config.Getenv("AWS_ROLE_ARN")},
			"WebIdentityToken": {jwt},
		},
		Secrets: []string{jwt},
	})
	if err != nil {
		return Credentials{}, fmt.Errorf("assume role with web identity: %w", err)
	}
	c, err := parseWebIdentity(body)
	if err != nil {
		return Credentials{}, fmt.Errorf("assume role with web identity: %w", err)
	}
	return c, nil
}

// container asks the agent of ECS or EKS.
func (s *Source) container(ctx context.Context, where string) (Credentials, error) {
	header := map[string]string{"Accept": "application/json"}
	token := s.config.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	if file := s.config.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
		b, err := s.config.ReadFile(file)
		if err != nil {
			return Credentials{}, fmt.Errorf("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: %w", err)
		}
		token = string(b)
	}
	if token = strings.TrimSpace(token); token != "" {
		header["Authorization"] = token
	}
	body, err := fetch.Do(ctx, s.config.Transport, fetch.Request{
		Method: "GET", URL: where, Header: header, Timeout: timeout, Secrets: []string{token},
	})
	if err != nil {
		return Credentials{}, fmt.Errorf("ask the container's endpoint: %w", err)
	}
	c, err := parseRole(body)
	if err != nil {
		return Credentials{}, fmt.Errorf("ask the container's endpoint: %w", err)
	}
	return c, nil
}

// checkContainerURL refuses to send a token, and to take credentials, in the clear over a network:
// without TLS only the process's own machine and the agents' addresses are asked.
func checkContainerURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("cannot be parsed") // the parser's error has the whole URL in it
	}
	switch u.Scheme {
	case "https":
		return nil
	case "http":
	default:
		return fmt.Errorf("has the scheme %q; it must be http or https", u.Scheme)
	}
	switch u.Hostname() {
	case "localhost", "169.254.170.2", "169.254.170.23", "fd00:ec2::23":
		return nil
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("sends a request to %q without TLS", u.Hostname())
}

// instance asks the metadata service of EC2, version 2: a session token, the role's name, the
// role's credentials.
func (s *Source) instance(ctx context.Context) (Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := s.askInstance(ctx)
	if err == nil {
		var c Credentials
		if c, err = parseRole(body); err == nil {
			return c, nil
		}
	}
	return Credentials{}, fmt.Errorf("ask the instance's metadata: %w", err)
}

func (s *Source) askInstance(ctx context.Context) ([]byte, error) {
	token := ""
	ask := func(method, path, header, value string) ([]byte, error) {
		return fetch.Do(ctx, s.config.Transport, fetch.Request{
			Method: method, URL: ec2URL + path, Header: map[string]string{header: value},
			Timeout: timeout, Secrets: []string{token},
		})
	}
	session, err := ask("PUT", "latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "30")
	if err != nil {
		return nil, err
	}
	const roles, header = "latest/meta-data/iam/security-credentials/", "X-aws-ec2-metadata-token"
	if token = strings.TrimSpace(string(session)); token == "" {
		return nil, errors.New("the metadata service returned no session token")
	}
	list, err := ask("GET", roles, header, token)
	if err != nil {
		return nil, err
	}
	role, _, _ := strings.Cut(strings.TrimSpace(string(list)), "\n")
	if role = strings.TrimSpace(role); role == "" {
		return nil, errors.New("the instance has no IAM role")
	}
	return ask("GET", roles+url.PathEscape(role), header, token)
}

// roleAnswer matches what a container's agent and an instance's metadata say.
type roleAnswer struct {
	Code, Message                       string // an instance's failures
	AccessKeyID, SecretAccessKey, Token string
	Expiration                          expiration
}

func parseRole(body []byte) (Credentials, error) {
	var a roleAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return Credentials{}, errNoJSON
	}
	if a.Code != "" && a.Code != "Success" {
		return Credentials{}, fmt.Errorf("%.200q: %.200q", a.Code, a.Message)
	}
	return Credentials{a.AccessKeyID, a.SecretAccessKey, a.Token, time.Time(a.Expiration)}, nil
}

// identityAnswer matches what STS says to AssumeRoleWithWebIdentity.
type identityAnswer struct {
	Credentials *struct {
		AccessKeyID, SecretAccessKey, SessionToken string
		Expiration                                 expiration
	}
}

// parseWebIdentity takes the answer as the specification shows it, and as STS nests it.
func parseWebIdentity(body []byte) (Credentials, error) {
	var a struct {
		identityAnswer
		AssumeRoleWithWebIdentityResponse struct{ AssumeRoleWithWebIdentityResult identityAnswer }
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return Credentials{}, errNoJSON
	}
	c := a.Credentials
	if c == nil {
		c = a.AssumeRoleWithWebIdentityResponse.AssumeRoleWithWebIdentityResult.Credentials
	}
	if c == nil {
		return Credentials{}, errors.New("the response has no Credentials")
	}
	expires := time.Time(c.Expiration)
	return Credentials{c.AccessKeyID, c.SecretAccessKey, c.SessionToken, expires}, nil
}

// errNoJSON stands for the decoder's own error, which may quote the answer.
var errNoJSON = errors.New("the response is not JSON of the expected form")

// expiration reads a time as AWS's endpoints write it: RFC 3339, or seconds since 1970.
type expiration time.Time

// UnmarshalJSON takes either form; null leaves the zero time.
func (e *expiration) UnmarshalJSON(b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		t, err := time.Parse(time.RFC3339, v)
		*e = expiration(t)
		return err
	case float64:
		if math.Abs(v) > 1<<40 {
			return errors.New("the time is out of range")
		}
		*e = expiration(time.Unix(int64(v), 0))
		return nil
	}
	return errors.New("neither a time nor a number")
}
