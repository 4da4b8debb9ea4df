package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mooringdb/mooring/lab/internal/gateway"
)

// startAudited starts the gateway with an audit log in a file.
func (b *bench) startAudited(ctx context.Context, binary, uri string) (err error) {
	b.auditLog = filepath.Join(b.directory, "audit.log")
	b.audited, err = b.startGateway(ctx, "mooring, audit", gateway.Config{
		Binary: binary, URI: uri, Args: []string{"--audit-file", b.auditLog},
	})
	return err
}

// auditedCases returns the insert of one document, with an audit log and without.
func (b *bench) auditedCases() []scenario {
	return b.added("insert-one-audit", b.audited, insertOne)
}

// checkAudit makes sure that the audit log has lines: otherwise that gateway was measured without.
func (b *bench) checkAudit() error {
	info, err := os.Stat(b.auditLog)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	if info.Size() == 0 {
		return errors.New("the audit log has no lines")
	}
	return nil
}
