package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/service/caller"
)

// Auth says which credentials of clients count.
type Auth struct {
	// APIKeys are the keys that count; nil: none, and APIKeysFile is empty.
	APIKeys *caller.KeyTable
	// APIKeysFile is the file with the keys; empty if they have another source.
	APIKeysFile string
	// APIKeysSum is SumHandleKeys of the text of the keys.
	APIKeysSum [sha256.Size]byte
	JWT        JWT
	// CertificateName chooses the principal in a client certificate; empty: they do not count.
	CertificateName caller.CertificateName
	// Operators are the principals that may call DeploymentService without a policy.
	Operators []string
}

// JWT describes the tokens that count. Without an Issuer there are none.
type JWT struct {
	Issuer, Audience string
	Algorithms       []string
	Skew             time.Duration
	Claim            string
}

// AuthEnabled reports whether clients are authenticated.
func (c *Config) AuthEnabled() bool {
	return c.Auth.APIKeys != nil || c.Auth.JWT.Issuer != "" || c.CertificatesCount()
}

// CertificatesCount reports whether client certificates count as credentials.
func (c *Config) CertificatesCount() bool {
	return c.TLS.ClientAuthorityFile != "" && c.Auth.CertificateName != ""
}

// Console describes the console.
type Console struct {
	Enabled bool
	// OIDC says how people sign in to it at the issuer of tokens. Without a Client they cannot.
	OIDC struct{ Client, Scope string }
}

func (c *Console) check(jwt *JWT, refuse func(option, problem string)) {
	if c.OIDC.Client == "" {
		return
	}
	if !c.Enabled {
		refuse("console.oidc.clientId", "needs console.enabled")
	}
	if jwt.Issuer == "" {
		refuse("console.oidc.clientId", "needs auth.jwt.issuer")
	}
}

// check refuses combinations that do not work.
func (a *Auth) check(refuse func(option, problem string)) {
	if (a.JWT.Issuer == "") != (a.JWT.Audience == "") {
		refuse("auth.jwt.issuer", "must be set together with auth.jwt.audience")
	}
	if a.JWT.Issuer != "" && a.JWT.Claim == "" {
		refuse("auth.jwt.claim", "is empty")
	}
}

// checkExposure refuses a listener that other machines can reach without TLS or authentication.
func (c *Config) checkExposure(option, address string, refuse func(option, problem string)) {
	if address == "" || isLocal(address) {
		return
	}
	if !c.TLS.Enabled() && !c.AllowPlaintext {
		refuse(option, address+" can be reached by other machines, in plain text: set "+
			"tls.certificateFile and tls.keyFile, or allowPlaintext")
	}
	if !c.AuthEnabled() && !c.AllowUnauthenticated {
		refuse(option, address+" can be reached by other machines, without authentication: set "+
			"auth.apiKeysFile, auth.jwt.issuer or tls.clientAuthorityFile, or allowUnauthenticated")
	}
}

// isLocal reports whether only this machine can reach a listener.
func isLocal(address string) bool {
	if strings.HasPrefix(address, unixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	ip, ipErr := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || ipErr == nil && ip.IsLoopback())
}

// RESTHosts returns the names in Host that REST answers for, beside localhost and IP addresses. It
// returns nil if any name will do: if the operator says so, or if a certificate proves the name to
// clients.
func (c *Config) RESTHosts() []string {
	if slices.Contains(c.REST.Hosts, anyHost) || c.TLS.Enabled() && !isLocal(c.REST.Address) {
		return nil
	}
	names := append([]string{}, c.REST.Hosts...)
	host, _, err := net.SplitHostPort(c.REST.Address)
	if err == nil && host != "" && !strings.HasPrefix(c.REST.Address, unixPrefix) {
		names = append(names, strings.ToLower(host))
	}
	return names
}

// CheckSecretFile returns an error if other users of the machine can read a file with a secret and
// allowReadable does not name it. A file that is not there is no problem.
func (c *Config) CheckSecretFile(path string) error {
	if path == "" || slices.Contains(c.AllowReadable, path) {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o004 == 0 {
		return nil //nolint:nilerr // the read of the file reports it
	}
	return fmt.Errorf("%s holds a secret, but other users of the machine can read it: chmod o-r, "+
		"or add its path to allowReadable", path)
}

// CheckMongoKeyFile does what CheckSecretFile does for tlsCertificateKeyFile, unless a password
// encrypts its key.
func (c *Config) CheckMongoKeyFile() error {
	if c.MongoDB.TLS.CertificateKeyFilePassword != "" {
		return nil
	}
	return c.CheckSecretFile(c.MongoDB.TLS.CertificateKeyFile)
}

// unixPrefix begins the address of a Unix domain socket.
const unixPrefix = "unix:"

// anyHost in rest.hosts allows any name.
const anyHost = "*"

// parseListener reads host:port, unix:/path or none.
func parseListener(text string) (string, error) {
	if path, ok := strings.CutPrefix(text, unixPrefix); ok {
		if !strings.HasPrefix(path, "/") {
			return "", fmt.Errorf("%q: the path after unix: must be an absolute path", text)
		}
		return text, nil
	}
	return parseAddress(text)
}

// parseLocal reads the address of a listener that only this machine may reach.
func parseLocal(text string) (string, error) {
	address, err := parseListener(text)
	if err == nil && address != "" && !isLocal(address) {
		err = fmt.Errorf("%q can be reached by other machines: use a loopback address such as "+
			"127.0.0.1:6060", text)
	}
	return address, err
}

// parseList returns the items of a list, which stand on lines or between commas.
func parseList(text string) ([]string, error) {
	var items []string
	for _, item := range strings.FieldsFunc(text, func(r rune) bool {
		return r == ',' || r == '\n'
	}) {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items, nil
}

// parsePrincipals reads the names of principals, as in logs. They stand on lines or between commas.
// A comma in the name of a certificate belongs to the name, unless another name or nothing follows
// it; one behind a backslash always does.
func parsePrincipals(text string) ([]string, error) {
	var names []string
	for line := range strings.SplitSeq(text, "\n") {
		certificate := "" // the name of a certificate that the next part may continue
		for part := range strings.SplitSeq(line, ",") {
			name := strings.TrimSpace(part)
			switch {
			case endsEscaped(certificate),
				certificate != "" && name != "" && !isPrincipal(name):
				certificate += "," + part
				names[len(names)-1] = strings.TrimRight(certificate, " \t\r")
			case isPrincipal(name):
				names = append(names, name)
				certificate = ""
				if strings.HasPrefix(name, certificateKind) {
					certificate = strings.TrimLeft(part, " \t")
				}
			case name == "":
				certificate = ""
			default:
				return nil, fmt.Errorf("%q must be key:NAME, jwt:NAME or cert:NAME", name)
			}
		}
	}
	return names, nil
}

// isPrincipal reports whether text is a kind of credential and a name.
func isPrincipal(text string) bool {
	return slices.ContainsFunc(principalKinds, func(kind string) bool {
		return strings.HasPrefix(text, kind) && text != kind
	})
}

// endsEscaped reports whether a text ends with a backslash that escapes what follows.
func endsEscaped(text string) bool {
	return (len(text)-len(strings.TrimRight(text, `\`)))%2 == 1
}

const certificateKind = "cert:"

var principalKinds = []string{"key:", "jwt:", certificateKind}

// parseHosts reads names of hosts. The first label of a name may be *.
func parseHosts(text string) ([]string, error) {
	names, _ := parseList(text)
	for i, name := range names {
		rest := strings.TrimPrefix(name, "*.")
		bad := strings.ContainsAny(rest, ":/@ *") || strings.Trim(rest, ".") == ""
		if bad && name != anyHost {
			return nil, fmt.Errorf("%q is not a host name (without a port), such as "+
				"api.example.com or *.example.com, or *", name)
		}
		names[i] = strings.ToLower(strings.TrimSuffix(name, "."))
	}
	return names, nil
}

// parseOrigins reads origins as browsers send them. One * in an origin stands for any text.
func parseOrigins(text string) ([]string, error) {
	origins, _ := parseList(text)
	for i, origin := range origins {
		scheme, host, ok := strings.Cut(origin, "://")
		if origin != anyHost && (!ok || scheme == "" || host == "" ||
			strings.ContainsAny(host, "/?# ") || strings.Count(origin, "*") > 1) {
			return nil, fmt.Errorf("%q is not an origin without a path, such as "+
				"https://app.example, or *", origin)
		}
		origins[i] = strings.ToLower(origin)
	}
	return origins, nil
}

func parseInsertStatus(text string) (int, error) {
	switch text {
	case "200":
		return http.StatusOK, nil
	case "201":
		return http.StatusCreated, nil
	}
	return 0, fmt.Errorf("%q is neither 200 nor 201", text)
}

func parseRequired(text string) (bool, error) {
	switch text {
	case "required":
		return true, nil
	case "optional":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither optional nor required", text)
}

func parseIssuer(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	if err := caller.CheckIssuer(text); err != nil {
		return "", fmt.Errorf("%q is not a valid issuer: %w", text, err)
	}
	return text, nil
}

func parseAlgorithms(text string) ([]string, error) {
	names, _ := parseList(text)
	for _, name := range names {
		if !slices.Contains(caller.Algorithms(), name) {
			return nil, fmt.Errorf("%q is not one of %s", name,
				strings.Join(caller.Algorithms(), ", "))
		}
	}
	if len(names) == 0 {
		return nil, errors.New("must have at least one algorithm")
	}
	return names, nil
}

func parseCertificateName(text string) (caller.CertificateName, error) {
	if text == none {
		return "", nil
	}
	if name := caller.CertificateName(text); slices.Contains(caller.CertificateNames(), name) {
		return name, nil
	}
	return "", fmt.Errorf("%q is not one of %v or none", text, caller.CertificateNames())
}

// orNone makes a parser of durations read none as 0.
func orNone(parse func(string) (time.Duration, error)) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		if text == none {
			return 0, nil
		}
		return parse(text)
	}
}

// parseCount reads a number of at least 1.
func parseCount(text string) (int, error) {
	n, err := parseLimit(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q is not a number of at least 1", text)
	}
	return n, err
}

// parseAPIKeys reads the text of API keys. No text means that they do not count.
func parseAPIKeys(text string) (*caller.KeyTable, error) {
	if text == "" {
		return nil, nil
	}
	return ParseAPIKeys([]byte(text))
}

// ParseAPIKeys reads the text of a file of API keys as Load does. A text without keys is an error.
func ParseAPIKeys(text []byte) (*caller.KeyTable, error) {
	keys, err := caller.ParseKeys(text)
	if err == nil && keys.Len() == 0 {
		return nil, errNoKey
	}
	return keys, err
}
