package shell

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/cmd/gateway/internal/transfer"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// inserting answers calls without a connection: it inserts all documents.
type inserting struct{ grpc.ClientConnInterface }

func (inserting) Invoke(
	_ context.Context, _ string, request, response any, _ ...grpc.CallOption,
) error {
	n := int64(len(request.(*mooringv1.InsertManyRequest).GetDocuments()))
	response.(*mooringv1.InsertManyResponse).InsertedCount = &n
	return nil
}

// TestRejectsToPipe imports two batches with rejects that go into a pipe, which has no position. An
// import that needs it is refused before, and one whose reader has gone fails.
func TestRejectsToPipe(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	importCommand.AllFlags(flags)
	if err := flags.Set("rejects", pipe); err != nil {
		t.Fatal(err)
	}
	s := &session{Invocation: Invocation{Flags: flags}}
	defer s.close()
	rejects, err := s.rejects()
	if err != nil {
		t.Fatal(err)
	}
	const docs = 2000
	run := func() (transfer.Imported, error) {
		return transfer.Import{
			Collection: client.In[bson.Raw](
				client.New(inserting{}, client.Options{Retries: -1}), "shop", "orders"),
			Rejects: rejects,
		}.Run(t.Context(), strings.NewReader(strings.Repeat("{\"a\":1}\n", docs)+"?\n"))
	}
	if got, err := run(); err != nil || got.Inserted != docs || got.Rejected != 1 {
		t.Errorf("Run: %+v and %v, want %d documents and a reject", got, err, docs)
	}
	if err := flags.Set("continue", filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
	_, err = s.rejects()
	if _, ok := errors.AsType[*UsageError](err); !ok {
		t.Errorf("with --continue: %v, want a UsageError", err)
	}
	reader.Close()
	if _, err := run(); !errors.Is(err, syscall.EPIPE) || isGone(err) {
		t.Errorf("Run without a reader: %v, want an error that is not a success", err)
	}
}
