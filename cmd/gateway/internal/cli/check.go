package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/server"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/topology/description"
)

func checkFlags(flags *pflag.FlagSet) {
	flags.Duration("timeout", 10*time.Second, "how long to try")
}

// check is the command check.
func check(c call) (err error) {
	cfg, err := config.Load(c.flags, c.environ)
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintf(c.stdout, "warning: %s\n", w)
	}
	if _, err := server.LoadTLS(cfg.TLS.CertificateFile, cfg.TLS.KeyFile); err != nil {
		return err
	}
	timeout, err := c.flags.GetDuration("timeout")
	if err != nil {
		return err
	}
	mongodb, err := client.New(cfg.MongoDB, client.Options{})
	if err != nil {
		return &config.Error{Option: "uri", Problem: err.Error()}
	}
	for _, w := range mongodb.Warnings() {
		fmt.Fprintf(c.stdout, "warning: %s\n", w)
	}
	if err := mongodb.Start(context.Background()); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		err = errors.Join(err, mongodb.Close(ctx))
	}()

	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	begin := time.Now()
	err = mongodb.Ping(ctx)
	took := time.Since(begin)
	report(c.stdout, cfg, mongodb.Topology())
	if err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	fmt.Fprintf(c.stdout, "ping        ok, %s with the connection\n", took.Round(10*time.Microsecond))
	return nil
}

// report writes what is known of the deployment.
func report(w io.Writer, cfg *config.Config, t description.Topology) {
	fmt.Fprintf(w, "uri         %s\n", cfg.MongoDB)
	set := ""
	if t.SetName != "" {
		set = ", set " + t.SetName
	}
	fmt.Fprintf(w, "deployment  %s%s\n", t.Kind, set)
	if t.CompatibilityError != nil {
		fmt.Fprintf(w, "            %v\n", t.CompatibilityError)
	}
	for _, s := range t.Servers {
		fmt.Fprintf(w, "server      %s: %s", s.Address, s.Kind)
		switch {
		case s.LastError != nil:
			fmt.Fprintf(w, ", %v", s.LastError)
		case s.IsAvailable():
			fmt.Fprintf(w, ", wire versions %d to %d, round trip %s", s.MinWireVersion, s.MaxWireVersion, s.AverageRTT.Round(10*time.Microsecond))
		}
		fmt.Fprintln(w)
	}
}
