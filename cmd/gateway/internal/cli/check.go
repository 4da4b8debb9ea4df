package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/cmd/gateway/internal/check"
	"github.com/mooringdb/mooring/cmd/gateway/internal/token"
	"github.com/mooringdb/mooring/core/client"
)

func checkFlags(flags *pflag.FlagSet) {
	flags.Duration("timeout", 10*time.Second, "how long to try")
	flags.Bool("json", false, "report in JSON")
}

// checkDeployment runs the command check.
func checkDeployment(c call) error {
	timeout, err := c.flags.GetDuration("timeout")
	if err != nil {
		return err
	}
	if timeout <= 0 {
		return &usageError{"check: --timeout must be more than 0"}
	}
	write := (*check.Report).Print
	if asJSON, err := c.flags.GetBool("json"); err != nil {
		return err
	} else if asJSON {
		write = printJSON
	}
	cfg, holder, err := loadAll(c)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout,
		fmt.Errorf("no answer within %v (--timeout)", timeout))
	defer cancel()
	report := check.Run(ctx, cfg.MongoDB, client.Options{OIDC: token.Provider(cfg.Token)})
	report.Clients = describeClients(ctx, cfg, holder)
	report.Warnings = slices.Insert(report.Warnings, 0, cfg.Warnings...)
	if err := write(report, c.stdout); err != nil {
		return err
	}
	if report.Error != "" {
		return errors.New(report.Error)
	}
	return nil
}

func printJSON(report *check.Report, w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}
