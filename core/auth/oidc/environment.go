package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/auth/internal/fetch"
)

// Environment describes a built-in integration: where a program runs says how it obtains tokens.
type Environment struct {
	// Name is the mechanism property ENVIRONMENT: test, azure, gcp or k8s.
	Name string

	// Resource is the property TOKEN_RESOURCE, for azure and gcp.
	Resource string

	// Getenv reads an environment variable; nil stands for os.Getenv.
	Getenv func(name string) string

	// ReadFile reads a token file; nil stands for the file system.
	ReadFile func(name string) ([]byte, error)

	// Transport carries the requests to the metadata services; nil stands for the network, without
	// a proxy.
	Transport http.RoundTripper
}

const (
	azureURL       = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource="
	gcpURL         = "http://metadata/computeMetadata/v1/instance/service-accounts/default/identity?audience="
	kubernetesFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// Provider returns the environment's provider. The error is a name that no environment has.
func (e Environment) Provider() (Provider, error) {
	if e.Getenv == nil {
		e.Getenv = os.Getenv
	}
	if e.ReadFile == nil {
		e.ReadFile = fetch.File
	}
	providers := map[string]ProviderFunc{
		"test": e.test, "azure": e.azure, "gcp": e.gcp, "k8s": e.kubernetes,
	}
	p, ok := providers[e.Name]
	if !ok {
		return nil, fmt.Errorf("MONGODB-OIDC does not support the ENVIRONMENT %q", e.Name)
	}
	return p, nil
}

// test reads the file that OIDC_TOKEN_FILE names. It is for tests of drivers.
func (e Environment) test(context.Context, Request) (Token, error) {
	name := e.Getenv("OIDC_TOKEN_FILE")
	if name == "" {
		return Token{}, errors.New("the environment variable OIDC_TOKEN_FILE is not set")
	}
	return e.file(name)
}

// kubernetes reads the token of the pod's service account.
func (e Environment) kubernetes(context.Context, Request) (Token, error) {
	for _, variable := range []string{"AZURE_FEDERATED_TOKEN_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"} {
		if name := e.Getenv(variable); name != "" {
			return e.file(name)
		}
	}
	return e.file(kubernetesFile)
}

func (e Environment) file(name string) (Token, error) {
	b, err := e.ReadFile(name)
	return Token{AccessToken: strings.TrimSpace(string(b))}, err
}

// TokenFile returns a provider that reads the token from a file, each time anew.
func TokenFile(name string) Provider {
	return ProviderFunc(func(context.Context, Request) (Token, error) {
		return Environment{ReadFile: fetch.File}.file(name)
	})
}

// azure asks the instance metadata service. The user name is the client id of a managed identity.
func (e Environment) azure(ctx context.Context, r Request) (Token, error) {
	where := azureURL + url.QueryEscape(e.Resource)
	if r.Username != "" {
		where += "&client_id=" + url.QueryEscape(r.Username)
	}
	header := map[string]string{"Accept": "application/json", "Metadata": "true"}
	body, err := e.get(ctx, where, header)
	if err != nil {
		return Token{}, err
	}
	return parseAzure(body)
}

func parseAzure(body []byte) (Token, error) {
	var answer struct {
		AccessToken string      `json:"access_token"`
		ExpiresIn   json.Number `json:"expires_in"` // seconds, in a string or not
	}
	if json.Unmarshal(body, &answer) != nil { // its error may quote the answer
		return Token{}, errors.New("the response is not JSON of the expected form")
	}
	seconds, err := strconv.ParseInt(string(answer.ExpiresIn), 10, 32)
	if err != nil && answer.ExpiresIn != "" {
		return Token{}, errors.New("expires_in in the response is not a number of seconds")
	}
	return Token{answer.AccessToken, time.Duration(seconds) * time.Second}, nil
}

// gcp asks the metadata server. Its answer is the token.
func (e Environment) gcp(ctx context.Context, _ Request) (Token, error) {
	where := gcpURL + url.QueryEscape(e.Resource)
	body, err := e.get(ctx, where, map[string]string{"Metadata-Flavor": "Google"})
	return Token{AccessToken: strings.TrimSpace(string(body))}, err
}

func (e Environment) get(
	ctx context.Context, where string, header map[string]string,
) ([]byte, error) {
	return fetch.Do(ctx, e.Transport, fetch.Request{
		Method: "GET", URL: where, Header: header, Timeout: timeout,
	})
}
