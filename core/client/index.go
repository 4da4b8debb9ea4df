package client

import (
	"context"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
)

// IndexModel describes an index to create. Fields that are unset are not sent.
type IndexModel struct {
	// Keys are the fields and their directions or kinds.
	Keys bson.Raw
	// Name is the index's name; "": it is made of the keys, such as "name_1_born_-1".
	Name                    string
	Background              *bool
	Unique                  *bool
	Sparse                  *bool
	Hidden                  *bool
	ExpireAfterSeconds      *int32
	Version                 *int32
	DefaultLanguage         string
	LanguageOverride        string
	TextIndexVersion        *int32
	Weights                 bson.Raw
	SphereIndexVersion      *int32
	Bits                    *int32
	Min, Max                *float64
	BucketSize              *int32
	PartialFilterExpression bson.Raw
	Collation               bson.Raw
	WildcardProjection      bson.Raw
	StorageEngine           bson.Raw
	// Extra is appended as it is. It must not repeat a field that is set.
	Extra bson.Raw
}

// CreateIndexesOptions holds the options of CreateIndexes. Of Common it takes Comment,
// WriteConcern, RawData and Extra.
type CreateIndexesOptions struct {
	Common
	// CommitQuorum is a number or a text. Servers before 4.4 do not know it, which is an error.
	CommitQuorum bson.Value
	MaxTimeMS    *int64
}

// CreateIndexes creates indexes, and returns their names.
func (c *Client) CreateIndexes(
	ctx context.Context, ns Namespace, models []IndexModel, opt CreateIndexesOptions,
) ([]string, error) {
	ck := check{client: c}
	ck.namespace(ns)
	if len(models) == 0 {
		ck.refuse("indexes", "is empty")
	}
	all := make([]string, len(models))
	for i := range models {
		if models[i].Keys.IsEmpty() {
			ck.refuse("indexes."+strconv.Itoa(i)+".key", "is empty")
		}
		ck.given(models[i].Extra, "indexes."+strconv.Itoa(i), "key", "name")
		all[i] = models[i].name()
	}
	h := helper{
		name: "createIndexes", target: bson.StringValue(ns.Collection), common: &opt.Common,
		add: func(b *bson.Builder) {
			b.OpenArray("indexes")
			for i := range models {
				b.OpenDocument("")
				models[i].appendTo(b, all[i])
				b.Close()
			}
			b.Close()
			appendValue(b, "commitQuorum", opt.CommitQuorum)
		},
	}
	if !opt.CommitQuorum.IsZero() {
		h.least, h.needs = wireVersion44, "commitQuorum"
	}
	err := c.change(ctx, ns.Database, h, opt.MaxTimeMS, &ck,
		[]string{"createIndexes", "indexes", "commitQuorum", "comment"})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// name returns the name of the index (Index Management, "Index Name Generation").
func (m *IndexModel) name() string {
	if m.Name != "" {
		return m.Name
	}
	var b strings.Builder
	for key, v := range m.Keys.All() {
		if b.Len() > 0 {
			b.WriteByte('_')
		}
		b.WriteString(key + "_")
		if n, ok := v.AsInt64(); ok {
			b.WriteString(strconv.FormatInt(n, 10))
		} else if f, ok := v.Double(); ok {
			b.WriteString(strconv.FormatFloat(f, 'g', -1, 64))
		} else {
			kind, _ := v.Str()
			b.WriteString(kind)
		}
	}
	return b.String()
}

func (m *IndexModel) appendTo(b *bson.Builder, name string) {
	b.Document("key", m.Keys).String("name", name)
	appendBool(b, "background", m.Background)
	appendBool(b, "unique", m.Unique)
	appendBool(b, "sparse", m.Sparse)
	appendBool(b, "hidden", m.Hidden)
	appendInt32(b, "expireAfterSeconds", m.ExpireAfterSeconds)
	appendInt32(b, "v", m.Version)
	appendString(b, "default_language", m.DefaultLanguage)
	appendString(b, "language_override", m.LanguageOverride)
	appendInt32(b, "textIndexVersion", m.TextIndexVersion)
	appendDocument(b, "weights", m.Weights)
	appendInt32(b, "2dsphereIndexVersion", m.SphereIndexVersion)
	appendInt32(b, "bits", m.Bits)
	appendDouble(b, "min", m.Min)
	appendDouble(b, "max", m.Max)
	appendInt32(b, "bucketSize", m.BucketSize)
	appendDocument(b, "partialFilterExpression", m.PartialFilterExpression)
	appendDocument(b, "collation", m.Collation)
	appendDocument(b, "wildcardProjection", m.WildcardProjection)
	appendDocument(b, "storageEngine", m.StorageEngine)
	b.AppendElements(m.Extra)
}

// DropIndex drops an index by its name. The name "*", which stands for all, is an error.
func (c *Client) DropIndex(
	ctx context.Context, ns Namespace, name string, opt ChangeOptions,
) error {
	ck := check{client: c}
	switch name {
	case "":
		ck.refuse("name", "is empty")
	case allIndexes:
		ck.refuse("name", "stands for all indexes; DropIndexes drops these")
	}
	return c.dropIndexes(ctx, ns, bson.StringValue(name), opt, &ck)
}

// DropIndexByKeys drops the index with these keys.
func (c *Client) DropIndexByKeys(
	ctx context.Context, ns Namespace, keys bson.Raw, opt ChangeOptions,
) error {
	ck := check{client: c}
	if keys.IsEmpty() {
		ck.refuse("keys", "is empty")
	}
	return c.dropIndexes(ctx, ns, bson.DocumentValue(keys), opt, &ck)
}

// DropIndexes drops all indexes but that of _id.
func (c *Client) DropIndexes(ctx context.Context, ns Namespace, opt ChangeOptions) error {
	return c.dropIndexes(ctx, ns, bson.StringValue(allIndexes), opt, &check{client: c})
}

const allIndexes = "*"

func (c *Client) dropIndexes(
	ctx context.Context, ns Namespace, index bson.Value, opt ChangeOptions, ck *check,
) error {
	ck.namespace(ns)
	return c.change(ctx, ns.Database, helper{
		name: "dropIndexes", target: bson.StringValue(ns.Collection), common: &opt.Common,
		add: func(b *bson.Builder) { b.Value("index", index) },
	}, opt.MaxTimeMS, ck, []string{"dropIndexes", "index", "comment"})
}

// ListIndexes opens a cursor over the indexes of a collection. Of the options' Common it takes
// Comment, RawData and Extra. If the collection does not exist, the server returns an error.
func (c *Client) ListIndexes(
	ctx context.Context, ns Namespace, opt ListOptions,
) (*cursor.Cursor, error) {
	ck := check{client: c}
	ck.namespace(ns)
	h := helper{name: "listIndexes", target: bson.StringValue(ns.Collection)}
	return c.list(ctx, ns.Database, h, &opt, &ck, []string{"listIndexes", "cursor", "comment"})
}

// ListIndexNames returns the names of the indexes of a collection.
func (c *Client) ListIndexNames(
	ctx context.Context, ns Namespace, opt ListOptions,
) ([]string, error) {
	cur, err := c.ListIndexes(ctx, ns, opt)
	if err != nil {
		return nil, err
	}
	return names(ctx, cur)
}
