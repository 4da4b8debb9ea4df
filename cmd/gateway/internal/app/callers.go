package app

import (
	"context"
	"crypto/tls"
	"log/slog"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/certificate"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/keyfile"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/policy"
)

// callers provides what tells clients apart and encrypts their connections, both up to date with
// their files.
var callers = fx.Module("callers", fx.Provide(
	newCallers, newPolicy, newCertificate, newTLS, newAccess,
))

// newCallers returns what authenticates clients; nil if nothing does.
func newCallers(lc fx.Lifecycle, cfg *config.Config, log *slog.Logger) *caller.Authenticator {
	if !cfg.AuthEnabled() {
		return nil
	}
	c := caller.Config{Keys: cfg.Auth.APIKeys}
	if cfg.CertificatesCount() {
		c.CertificateName = cfg.Auth.CertificateName
	}
	if jwt := cfg.Auth.JWT; jwt.Issuer != "" {
		c.Tokens = &caller.TokenConfig{
			Issuer: jwt.Issuer, Audience: jwt.Audience, Algorithms: jwt.Algorithms,
			Skew: jwt.Skew, Claim: jwt.Claim,
			Fetched: func(keys int, err error) {
				if err != nil {
					log.Warn("the keys of the issuer of tokens cannot be fetched",
						"issuer", jwt.Issuer, "keys", keys, "err", err)
					return
				}
				log.Debug("keys of the issuer of tokens fetched", "issuer", jwt.Issuer,
					"keys", keys)
			},
		}
	}
	a := caller.New(c)
	lc.Append(fx.Hook{OnStop: func(context.Context) error {
		a.Close()
		return nil
	}})
	return a
}

// newPolicy returns what decides about the requests of clients; nil if they may do everything.
func newPolicy(cfg *config.Config) *policy.Enforcer {
	if cfg.Policy.Rules == nil {
		return nil
	}
	return policy.NewEnforcer(policy.Config{
		Policy: cfg.Policy.Rules, JavaScript: cfg.Policy.JavaScript,
	})
}

// newCertificate returns the certificate of the listeners; nil if they have none.
func newCertificate(cfg *config.Config) (*certificate.Holder, error) {
	return certificate.New(cfg.TLS)
}

func newTLS(h *certificate.Holder) *tls.Config { return h.TLS() }

// access watches the files of API keys, idempotency key, policy and certificates, those for MongoDB
// included.
type access []*keyfile.Watcher

func newAccess(lc fx.Lifecycle, cfg *config.Config, log *slog.Logger, a *caller.Authenticator,
	h *certificate.Holder, rules *policy.Enforcer, exact *idempotency.Keys, mongo *mongoTLS,
) access {
	var watchers access
	add := func(c keyfile.Config) {
		c.Log = log
		w := keyfile.New(c)
		lc.Append(fx.Hook{OnStart: w.Start, OnStop: w.Close})
		watchers = append(watchers, w)
	}
	if path := cfg.Auth.APIKeysFile; path != "" {
		add(keyfile.Config{
			Source: "api_keys", Paths: []string{path}, Sum: string(cfg.Auth.APIKeysSum[:]),
			Messages: keyfile.Messages{
				Read: "API keys read", Count: "keys",
				Failed: "the API keys cannot be read: keeping the old ones",
			},
			Use: func(texts []string) (int, error) {
				if err := cfg.CheckSecretFile(path); err != nil {
					return 0, err
				}
				keys, err := config.ParseAPIKeys([]byte(texts[0]))
				if err != nil {
					return 0, err
				}
				a.Replace(keys)
				return keys.Len(), nil
			},
		})
	}
	if path := cfg.IdempotencyKeyFile; path != "" {
		add(keyfile.Config{
			Source: "idempotency_key", Paths: []string{path},
			Sum: string(cfg.IdempotencyKeySum[:]),
			Messages: keyfile.Messages{
				Read: "idempotency key read", Count: "keys",
				Failed: "the idempotency key cannot be used: keeping the old one",
			},
			Use: func(texts []string) (int, error) {
				if err := cfg.CheckSecretFile(path); err != nil {
					return 0, err
				}
				s, err := config.ParseIdempotencyKey([]byte(texts[0]))
				if err == nil {
					err = changeIdempotency(exact, s, log)
				}
				return s.Len(), err
			},
		})
	}
	if rules != nil {
		add(keyfile.Config{
			Source: "policy", Paths: []string{cfg.Policy.File}, Sum: cfg.Policy.Sum,
			Messages: keyfile.Messages{
				Read: "policy read", Count: "rules",
				Failed: "the policy cannot be used: keeping the old rules",
			},
			Use: func(texts []string) (int, error) {
				p, err := policy.Parse([]byte(texts[0]))
				if err != nil {
					return 0, err
				}
				rules.Replace(p)
				return p.Len(), nil
			},
		})
	}
	if h != nil {
		add(keyfile.Config{
			Source: "certificate", Paths: h.Paths(), Sum: h.Sum(),
			Messages: keyfile.Messages{
				Read: "certificate read", Count: "certificates",
				Failed: "the certificate cannot be used: keeping the old one",
			},
			Use: func(texts []string) (int, error) {
				if err := cfg.CheckSecretFile(cfg.TLS.KeyFile); err != nil {
					return 0, err
				}
				return 1, h.Use(texts)
			},
		})
	}
	if mongo.TLS != nil && len(mongo.Files()) > 0 {
		add(keyfile.Config{
			Source: "mongodb_certificates", Paths: mongo.Files(), Sum: mongo.sum,
			Messages: keyfile.Messages{
				Read: "certificates for MongoDB read", Count: "files",
				Failed: "the certificates for MongoDB cannot be used: keeping the old ones",
			},
			Use: func(texts []string) (int, error) {
				if err := cfg.CheckMongoKeyFile(); err != nil {
					return 0, err
				}
				return len(texts), mongo.Reload()
			},
		})
	}
	return watchers
}

// reload reads the files now.
func (a access) reload() {
	for _, w := range a {
		w.Reload()
	}
}
