package shell

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/cmd/gateway/internal/declare"
	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
	"github.com/mooringdb/mooring/cmd/gateway/internal/schema"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

var types = &Command{
	Name: "types", Operands: "DATABASE [COLLECTION[=NAME]]…", run: runTypes,
	Synopsis: "print types of documents in TypeScript, Go or Python",
	Doc: `Prints declarations of the documents of a database, or of some of its collections: from
the $jsonSchema of a collection's validator, else from a sample of its documents. The
output's head says which are from a sample. NAME is another name for the type.

  mooring types shop orders --language ts > shop.ts`,
	Flags: func(flags *pflag.FlagSet) {
		flags.String("language", "", "language of the output: "+
			strings.Join(declare.Languages, ", "))
		flags.Int64("sample", 1000, "how many documents to read of a collection without a schema")
		flags.Bool("bson", false, "have the values of the package bson, in ts and python; in go "+
			"they always are")
		flags.String("package", "models", "package of the output, in go")
	},
}

// idSample is how many documents are read for the type of _id, if a validator does not tell it.
const idSample = 100

func runTypes(ctx context.Context, s *session) error {
	database, words, err := collectionsNamed(s.Operands)
	if err != nil {
		return err
	}
	o := declare.Options{
		Language: s.text("language"), BSON: s.isSet("bson"), Package: s.text("package"),
	}
	if !slices.Contains(declare.Languages, o.Language) {
		return usage("--language must be one of %s", strings.Join(declare.Languages, ", "))
	}
	if s.number("sample") < 1 {
		return usage("--sample must be at least 1")
	}
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	found, err := c.collections(ctx, database)
	if err != nil {
		return err
	}
	found, err = choose(found, database, words)
	if err != nil {
		return err
	}
	var collections []declare.Collection
	var sampled []string
	for _, f := range found {
		in := client.In[bson.Raw](c.Client, database, f.name)
		d := declare.Collection{Name: f.name, As: f.as}
		if d.Type, err = schema.Parse(f.validator); err != nil {
			return fmt.Errorf("the validator of %s: %w", f.name, err)
		}
		if d.Type == nil {
			sampled = append(sampled, f.name)
			d.Type, d.Doc, err = sample(ctx, in, s.number("sample"))
		} else {
			d.Type, d.Doc, err = identified(ctx, in, d.Type, f.strict)
		}
		if err != nil {
			return err
		}
		collections = append(collections, d)
	}
	o.Head = head(database, sampled, o)
	text, err := declare.Write(collections, o)
	if err != nil {
		return err
	}
	_, err = s.Stdout.Write(text)
	return err
}

// head returns what the output says of itself.
func head(database string, sampled []string, o declare.Options) []string {
	lines := []string{"Documents of the database " + database + ", written by mooring types."}
	switch {
	case o.Language == "go":
	case o.BSON:
		lines = append(lines, "Values are those of the package bson.")
	default:
		lines = append(lines, "Values are relaxed Extended JSON.")
	}
	if len(sampled) > 0 {
		lines = append(lines, "These are from a SAMPLE, since no validator describes them; other "+
			"documents may differ:")
		for _, name := range sampled {
			lines = append(lines, "  "+strings.Join(strings.Fields(name), " "))
		}
	}
	return lines
}

// described holds what the server says of a collection.
type described struct {
	name, as  string
	validator bson.Raw
	strict    bool // writes that the validator refuses fail
}

// collections returns the collections and views of a database, but for the server's own.
func (c *connection) collections(ctx context.Context, database string) ([]described, error) {
	catalog := mooringv1.NewCatalogServiceClient(c.conn)
	page, err := client.Call(ctx, c.Client, catalog.ListCollections,
		&mooringv1.ListCollectionsRequest{Database: database})
	if err != nil {
		return nil, err
	}
	documents, token := page.GetDocuments(), page.GetCursor()
	for token != "" {
		next, err := client.Call(ctx, c.Client, mooringv1.NewCursorServiceClient(c.conn).NextPage,
			&mooringv1.NextPageRequest{Cursor: token})
		if err != nil {
			return nil, err
		}
		documents, token = append(documents, next.GetDocuments()...), next.GetCursor()
	}
	var found []described
	for _, d := range documents {
		info := bson.Raw(d.GetBson())
		name, _ := info.Lookup("name")
		f := described{strict: true}
		f.name, _ = name.Str()
		if v, ok := info.Lookup("options", "validator"); ok {
			f.validator, _ = v.Document()
		}
		for option, strict := range map[string]string{
			"validationAction": "error", "validationLevel": "strict",
		} {
			if v, ok := info.Lookup("options", option); ok {
				text, _ := v.Str()
				f.strict = f.strict && text == strict
			}
		}
		if !strings.HasPrefix(f.name, "system.") {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b described) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

// collectionsNamed returns the database and the collections of words. The database may also stand
// before each collection, as in other commands: no database has a dot in its name.
func collectionsNamed(words []string) (database string, collections []string, err error) {
	database, _, dotted := strings.Cut(words[0], ".")
	if !dotted {
		return database, words[1:], nil
	}
	for _, word := range words {
		collection, ok := strings.CutPrefix(word, database+".")
		if !ok || database == "" || collection == "" {
			return "", nil, usage("write DATABASE COLLECTION…, or DATABASE.COLLECTION for each, " +
				"of one database")
		}
		collections = append(collections, collection)
	}
	return database, collections, nil
}

// choose returns the collections that the words name, or all.
func choose(found []described, database string, words []string) ([]described, error) {
	if len(found) == 0 {
		return nil, fmt.Errorf("the database %s has no collection", database)
	}
	if len(words) == 0 {
		return found, nil
	}
	var chosen []described
	for _, word := range words {
		name, as, _ := strings.Cut(word, "=")
		i := slices.IndexFunc(found, func(f described) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("the database %s has no collection %s", database, name)
		}
		if as != "" && !declare.IsTypeName(as) {
			return nil, usage("%q is not the name of a type: it must begin with a capital "+
				"letter, and have letters and digits only", as)
		}
		found[i].as = as
		chosen = append(chosen, found[i])
	}
	return chosen, nil
}

// sample returns the type of some documents, and says how many they are. Where the server has no
// $sample, they are the first ones.
func sample(
	ctx context.Context, in *client.Collection[bson.Raw], most int64,
) (*schema.Type, string, error) {
	stage := bson.NewBuilder(nil).OpenDocument("$sample").Int64("size", most).Close().Finish()
	s, err := learn(in.Aggregate(ctx, []any{stage}))
	if err != nil && s.Len() == 0 {
		s, err = learn(in.Find(ctx, nil, func(r *mooringv1.FindRequest) { r.Limit = &most }))
	}
	return s.Type(), "Inferred from a sample of " + howMany(s.Len()) + ".", err
}

func learn(documents iter.Seq2[bson.Raw, error]) (*schema.Sample, error) {
	s := &schema.Sample{}
	for d, err := range documents {
		if err != nil {
			return s, err
		}
		s.Add(d)
	}
	return s, nil
}

// identified returns the type of a validator with an _id, and says where it is from. Validators
// seldom describe _id, which is then that of some documents. Without any, it is an ObjectId, which
// the gateway gives a document that has none.
func identified(
	ctx context.Context, in *client.Collection[bson.Raw], t *schema.Type, strict bool,
) (*schema.Type, string, error) {
	said := "Its validator describes it."
	if !strict {
		said = "Its validator describes it, but does not refuse all others: see its " +
			"validationLevel and validationAction."
	}
	if t.Has("_id") || len(t.Fields) == 0 {
		return t.Required("_id"), said, nil
	}
	limit := int64(idSample)
	only := bson.NewBuilder(nil).Int32("_id", 1).Finish()
	s, err := learn(in.Find(ctx, nil, func(r *mooringv1.FindRequest) {
		r.Limit, r.Projection = &limit, document(only)
	}))
	if err != nil {
		return nil, "", err
	}
	id := &schema.Type{Kinds: schema.ObjectID}
	if fields := s.Type().Fields; len(fields) > 0 {
		id = fields[0].Type
	}
	if s.Len() > 0 {
		said += "\nIts _id is as in " + howMany(s.Len()) + "."
	}
	return t.WithField(schema.Field{Name: "_id", Type: id}), said, nil
}

func howMany(documents int) string { return render.Count(documents, "document") }
