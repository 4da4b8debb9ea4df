package deployment

import (
	"crypto/rand"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// newUUID returns the name of a collection that no other one has.
func newUUID() bson.Value {
	var id [16]byte
	_, _ = rand.Read(id[:]) // cannot fail
	return bson.BinaryValue(bson.SubtypeUUID, id[:])
}

// checkUUID refuses a command about a collection by another UUID than it has.
func (h *host) checkUUID(cmd *request) error {
	wanted := field(cmd.Body, "collectionUUID")
	if wanted.IsZero() {
		return nil
	}
	if subtype, _, ok := wanted.Binary(); !ok || subtype != bson.SubtypeUUID {
		return failure.TypeMismatch.Errorf(
			"BSON field '%s.collectionUUID' is the wrong type", cmd.Name)
	}
	database, name, _ := strings.Cut(cmd.collection(), ".")
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, exists := s.collections[cmd.collection()]; exists && c.uuid.Equal(wanted) {
		return nil
	}
	details := bson.NewBuilder(nil).String("db", database).Value("collectionUUID", wanted).
		String("expectedCollection", name)
	actual := bson.NullValue()
	for ns, c := range s.collections {
		if other, here := strings.CutPrefix(ns, database+"."); here && c.uuid.Equal(wanted) {
			actual = bson.StringValue(other)
		}
	}
	return &failure.Error{
		Code:    failure.CollectionUUIDMismatch,
		Message: "Collection UUID does not match that specified",
		Details: details.Value("actualCollection", actual).Finish(),
	}
}

// collection returns the namespace of the collection that a command is about.
func (r *request) collection() string {
	if r.Name == "renameCollection" {
		from, _ := field(r.Body, r.Name).Str()
		return from
	}
	return namespace(r)
}

// validations are the options of validators, and their values.
var validations = map[string][]string{
	"validationLevel":  {"strict", "moderate", "off"},
	"validationAction": {"error", "warn"},
}

// checkValidator refuses a validator that cannot be read, and options of it that do not exist.
func checkValidator(options bson.Raw) error {
	for name, values := range validations {
		if v := field(options, name); !v.IsZero() {
			if text, _ := v.Str(); !slices.Contains(values, text) {
				return failure.BadValue.Errorf("%s cannot be %q", name, text)
			}
		}
	}
	_, err := scope{}.matches(document(options, "validator"), nil)
	return err
}

// allows refuses a document that the validator or a unique index of a collection does not allow, in
// the place of before; nil: beside the others.
func (c *collection) allows(namespace string, before, after bson.Raw, bypass bool) error {
	if err := c.duplicates(namespace, before, after); err != nil || bypass {
		return err
	}
	validator := document(c.options, "validator")
	level, _ := field(c.options, "validationLevel").Str()
	action, _ := field(c.options, "validationAction").Str()
	if validator == nil || level == "off" || action == "warn" {
		return nil
	}
	valid, err := scope{}.matches(validator, after)
	if err != nil || valid {
		return err
	}
	if was, _ := (scope{}).matches(validator, before); level == "moderate" && before != nil &&
		!was {
		return nil // the document was invalid before
	}
	return &failure.Error{
		Code: failure.DocumentValidationFailure, Message: "Document failed validation",
		Details: bson.NewBuilder(nil).OpenDocument("errInfo").
			Value("failingDocumentId", field(after, "_id")).
			Document("details", refusal(validator)).Close().Finish(),
	}
}

// refusal returns the details of a refusal, as MongoDB gives them, for the first rule of a
// validator.
func refusal(validator bson.Raw) bson.Raw {
	it := validator.Iter()
	it.Next()
	operator := it.Key()
	if !strings.HasPrefix(operator, "$") {
		condition, _ := it.Value().Document()
		if operator = condition.FirstKey(); !strings.HasPrefix(operator, "$") {
			operator = "$eq"
		}
	}
	return bson.NewBuilder(nil).String("operatorName", operator).
		OpenDocument("specifiedAs").Value(it.Key(), it.Value()).Close().
		String("reason", "comparison failed").Finish()
}

// duplicates returns the error about a document that a unique index does not allow.
func (c *collection) duplicates(namespace string, before, after bson.Raw) error {
	for _, index := range c.indexes {
		if !field(index, "unique").Truthy() && !field(index, "prepareUnique").Truthy() {
			continue
		}
		keys := document(index, "key")
		if before != nil && sameKeys(keys, before, after) {
			continue
		}
		if slices.ContainsFunc(c.docs, func(other bson.Raw) bool {
			return !bytesEqual(other, before) && sameKeys(keys, after, other)
		}) {
			return duplicate(namespace, index, after)
		}
	}
	return nil
}

// duplicate returns the error about a second document with the same keys of an index.
func duplicate(namespace string, index, doc bson.Raw) error {
	name, _ := field(index, "name").Str()
	keys := document(index, "key")
	b := bson.NewBuilder(nil).Document("keyPattern", keys).OpenDocument("keyValue")
	for key := range keys.All() {
		v := field(doc, strings.Split(key, ".")...)
		if v.IsZero() {
			v = bson.NullValue()
		}
		b.Value(key, v)
	}
	return &failure.Error{
		Code: failure.DuplicateKey, Details: b.Close().Finish(),
		Message: "E11000 duplicate key error collection: " + namespace + " index: " + name +
			" dup key",
	}
}

// shardCollection makes a collection, if there is none, with an index of the shard key. Only a
// mongos knows the command.
func (h *host) shardCollection(cmd *request) (reply, error) {
	if !h.deployment.isRouted() {
		return reply{}, failure.CommandNotFound.Errorf("no such command: '%s'", cmd.Name)
	}
	if cmd.Database != "admin" {
		return reply{}, failure.Unauthorized.Errorf(
			"shardCollection may only be run against the admin database.")
	}
	name, _ := field(cmd.Body, cmd.Name).Str()
	keys := document(cmd.Body, "key")
	if _, collection, _ := strings.Cut(name, "."); collection == "" || keys.IsEmpty() {
		return reply{}, failure.BadValue.Errorf("shardCollection needs a namespace and a key")
	}
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	c, exists := s.collections[name]
	if !exists {
		s.setLocked("create", name, &collection{})
		c = s.collections[name]
	}
	switch {
	case c.shardKey != nil && !bytesEqual(c.shardKey, keys):
		return reply{}, failure.AlreadyInitialized.Errorf(
			"sharding already enabled for collection %s",
			name)
	case c.shardKey == nil:
		c = c.clone()
		c.shardKey = keys
		if !slices.ContainsFunc(c.allIndexes(), func(index bson.Raw) bool {
			return bytesEqual(document(index, "key"), keys)
		}) {
			c.indexes = append(slices.Clone(c.indexes), shardIndex(cmd.Body, keys))
		}
		s.setLocked("shardCollection", name, c)
	}
	return ok(func(b *bson.Builder) { b.String("collectionsharded", name) })
}

// shardIndex returns the index of a shard key.
func shardIndex(cmd, keys bson.Raw) bson.Raw {
	var parts []string
	for key, v := range keys.All() {
		n, isNumber := v.AsInt64()
		text, _ := v.Str()
		if isNumber {
			text = string(rune('0' + n))
		}
		parts = append(parts, key, text)
	}
	b := bson.NewBuilder(nil).Document("key", keys).String("name", strings.Join(parts, "_"))
	if unique, _ := field(cmd, "unique").Bool(); unique {
		b.Bool("unique", true)
	}
	return b.Int32("v", 2).Finish()
}
