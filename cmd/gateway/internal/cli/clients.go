package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/mooringdb/mooring/cmd/gateway/internal/certificate"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
	"github.com/mooringdb/mooring/service/caller"
)

// describeClients says where clients connect and which credentials count. It asks the issuer of
// tokens for its keys.
func describeClients(ctx context.Context, cfg *config.Config, h *certificate.Holder) []string {
	how := "in plain text"
	if h != nil {
		how = "with TLS, a certificate until " +
			h.NotAfter().UTC().Format("2006-01-02 15:04 UTC")
	}
	lines := []string{fmt.Sprintf("gRPC at %s, REST at %s, %s",
		cmp.Or(cfg.GRPC.Address, "none"), cmp.Or(cfg.REST.Address, "none"), how)}
	if keys := cfg.Auth.APIKeys; keys != nil {
		for _, key := range keys.Describe() {
			lines = append(lines, "API key of "+key)
		}
	}
	if cfg.Auth.JWT.Issuer != "" {
		lines = append(lines, describeTokens(ctx, cfg.Auth.JWT))
	}
	if cfg.CertificatesCount() {
		lines = append(lines, "client certificates, named by "+string(cfg.Auth.CertificateName))
	}
	if !cfg.AuthEnabled() {
		lines = append(lines, "no credential is needed")
	}
	return lines
}

func describeTokens(ctx context.Context, jwt config.JWT) string {
	what := fmt.Sprintf("tokens of %s for %s", jwt.Issuer, jwt.Audience)
	n, err := caller.FetchKeys(ctx, &caller.TokenConfig{Issuer: jwt.Issuer})
	if err != nil {
		return what + ": FAILED, " + err.Error()
	}
	return fmt.Sprintf("%s (the issuer has %s)", what, render.Count(n, "key"))
}
