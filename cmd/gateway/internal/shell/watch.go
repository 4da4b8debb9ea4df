package shell

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/cmd/gateway/internal/checkpoint"
	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

var watch = &Command{
	Name: "watch", Operands: "[NAMESPACE|DATABASE] [PIPELINE]", run: runWatch,
	Synopsis: "print changes as they happen",
	Doc: `Prints the changes of a collection, of a database, or of the deployment, one line each,
until Ctrl-C. When the connection breaks, it goes on after the last change. With --continue it
begins where the last watch with the same file has ended, and may print that one's last change
twice. It needs a replica set or a sharded cluster.

  mooring watch shop.orders '[{"$match": {"operationType": "insert"}}]'`,
	Flags: func(flags *pflag.FlagSet) {
		flags.Bool("canonical", false, "write canonical Extended JSON, which keeps all types")
		flags.String("full-document", "", "which document an update has beside the change: "+
			"updateLookup, whenAvailable or required")
		flags.String("continue", "", "file that keeps how far it has come")
	},
}

// saveEvery is the least time after which a position without a change is saved.
const saveEvery = 5 * time.Second

// watched holds the resume token of where a watch has come to, as Extended JSON.
type watched struct {
	Watching string `json:"watching"`
	After    string `json:"after"`

	saved time.Time
}

func runWatch(ctx context.Context, s *session) error {
	var database, collection string
	if word := s.operand(0); word != "" {
		database, collection, _ = strings.Cut(word, ".")
	}
	var pipeline []*mooringv1.Document
	var err error
	if word := s.operand(1); word != "" {
		if pipeline, err = s.documents("PIPELINE", word); err != nil {
			return err
		}
	}
	state, path := watched{Watching: s.operand(0)}, s.text("continue")
	after, err := state.load(path)
	if err != nil {
		return err
	}
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	full := s.text("full-document")
	set := func(r *mooringv1.WatchRequest) {
		if r.Pipeline, r.StartAfter = pipeline, after; collection == "" {
			r.Collection = nil
		}
		if full != "" {
			r.FullDocument = &full
		}
	}
	w, err := render.New(s.Stdout, render.Options{Format: render.NDJSON, Mode: s.mode()})
	if err != nil {
		return err
	}
	ctx = client.WithResumeTokens(ctx, func(token *mooringv1.Document) error {
		if time.Since(state.saved) < saveEvery {
			return nil
		}
		return state.save(path, token.GetBson())
	})
	for change, err := range client.In[bson.Raw](c.Client, database, collection).Watch(ctx, set) {
		switch {
		case ctx.Err() != nil:
			return nil // a signal is how a watch ends
		case err != nil:
			return err
		}
		if err := w.Write(change); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
		id, _ := change.Lookup("_id")
		token, _ := id.Document()
		if err := state.save(path, token); err != nil {
			return err
		}
	}
	return nil
}

// load returns the token after which the watch goes on; nil: it begins now.
func (w *watched) load(path string) (*mooringv1.Document, error) {
	if path == "" {
		return nil, nil
	}
	watching := w.Watching
	ok, err := checkpoint.Load(path, w)
	if !ok || err != nil {
		return nil, err
	}
	if w.Watching != watching {
		return nil, usage("--continue: %s belongs to a watch of %q", path, w.Watching)
	}
	token, err := extjson.Parse(nil, []byte(w.After))
	if err != nil {
		return nil, wrongJSON(path, err)
	}
	return document(token), nil
}

func (w *watched) save(path string, token bson.Raw) error {
	if path == "" {
		return nil
	}
	text, err := extjson.Append(nil, token, extjson.Canonical)
	if err != nil {
		return err
	}
	w.After, w.saved = string(text), time.Now()
	return checkpoint.Save(path, w, false)
}
