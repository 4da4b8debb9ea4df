package shell

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/cmd/gateway/internal/profile"
	"github.com/mooringdb/mooring/cmd/gateway/internal/transfer"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// completionTime limits how long a completion asks the gateway.
const completionTime = time.Second

// Complete returns what can stand where the last of a command's words does: a namespace, the name
// of an RPC or of a profile, or a format. It asks the gateway, for a second at most.
func (c *Command) Complete(words, environ []string) []string {
	before, last := words[:len(words)-1], words[len(words)-1]
	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	c.AllFlags(flags)
	if len(before) > 0 {
		switch before[len(before)-1] {
		case "--profile":
			names, _ := profile.Names(environ) // without them, there is nothing to complete
			return names
		case "--output", "-o":
			return []string{"table", "ndjson", "json", "csv", "bson"}
		case "--format":
			return []string{
				string(transfer.NDJSON), string(transfer.JSON), string(transfer.CSV),
				string(transfer.BSON),
			}
		}
	}
	if flags.Parse(before) != nil || flags.NArg() > 0 {
		return nil
	}
	if c == call {
		return rpcNames()
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	s := &session{Invocation: Invocation{Flags: flags, Environ: environ, Stderr: io.Discard}}
	defer s.close()
	return s.namespaces(ctx, last)
}

// namespaces returns the databases that begin with a word, or, if it is only one, its collections.
func (s *session) namespaces(ctx context.Context, word string) []string {
	c, err := s.connect(ctx)
	if err != nil {
		return nil
	}
	catalog, nameOnly := mooringv1.NewCatalogServiceClient(c.conn), true
	database, _, isWhole := strings.Cut(word, ".")
	if !isWhole {
		all, err := client.Call(ctx, c.Client, catalog.ListDatabases,
			&mooringv1.ListDatabasesRequest{NameOnly: &nameOnly})
		if err != nil {
			return nil
		}
		var found []string
		for _, name := range namesOf(all.GetDocuments()) {
			if strings.HasPrefix(name, word) {
				found = append(found, name+".")
			}
		}
		if len(found) != 1 {
			return found
		}
		database = strings.TrimSuffix(found[0], ".")
	}
	all, err := client.Call(ctx, c.Client, catalog.ListCollections,
		&mooringv1.ListCollectionsRequest{Database: database, NameOnly: &nameOnly})
	if err != nil {
		return nil
	}
	found := namesOf(all.GetDocuments())
	for i, name := range found {
		found[i] = database + "." + name
	}
	return found
}

// namesOf returns the names in the documents of a catalog.
func namesOf(docs []*mooringv1.Document) (names []string) {
	for _, d := range docs {
		v, _ := bson.Raw(d.GetBson()).Lookup("name")
		if name, ok := v.Str(); ok {
			names = append(names, name)
		}
	}
	return names
}
