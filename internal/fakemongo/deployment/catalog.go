package deployment

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

func (h *host) create(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkValidator(cmd.Body); err != nil {
		return reply{}, err
	}
	c := collection{max: int(integer(cmd.Body, "max"))}
	options := new(bson.Builder)
	for key, v := range cmd.Body.All() {
		switch {
		case key == "create" || key == "comment" || slices.Contains(driverFields, key):
		case key == "clusteredIndex":
			index, _ := v.Document()
			index = bson.With(index, "v", bson.Int32Value(2))
			c.indexes = []bson.Raw{bson.With(index, "clustered", bson.BoolValue(true))}
			options.Document(key, index)
		default:
			options.Value(key, v)
		}
	}
	c.options = options.Finish()
	if other, exists := s.collections[namespace(cmd)]; exists {
		same := bytes.Equal(c.options, other.options) ||
			c.options.IsEmpty() && other.options.IsEmpty()
		if h.wire < wire70 || !same {
			return reply{}, failure.NamespaceExists.Errorf(
				"Collection %s already exists.", namespace(cmd))
		}
		return ok(nil)
	}
	s.setLocked("create", namespace(cmd), &c)
	return ok(nil)
}

// setLocked puts a collection in the place of the one with that name.
func (s *store) setLocked(kind, namespace string, c *collection) {
	if c.uuid.IsZero() {
		c.uuid = newUUID()
	}
	s.doLocked(entry{
		kind: kind, namespace: namespace, nsType: c.kind(),
		apply: func(s *store) {
			s.collections[namespace] = c.clone() // each store has its own
		},
	})
}

func (h *host) drop(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.existingLocked(cmd)
	if err != nil && h.wire < wire70 {
		return reply{}, failure.NamespaceNotFound.Errorf("ns not found")
	}
	if err != nil {
		return ok(nil)
	}
	s.dropLocked(namespace(cmd))
	return ok(func(b *bson.Builder) {
		b.Int32("nIndexesWas", int32(len(c.allIndexes()))).String("ns", namespace(cmd))
	})
}

func (s *store) dropLocked(namespace string) {
	s.doLocked(entry{kind: "drop", namespace: namespace, apply: func(s *store) {
		delete(s.collections, namespace)
	}})
}

// dropDatabase drops all collections of a database, and then the database, if there is one.
func (h *host) dropDatabase(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.collections {
		if strings.HasPrefix(name, cmd.Database+".") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ok(nil)
	}
	slices.Sort(names)
	for _, name := range names {
		s.dropLocked(name)
	}
	s.doLocked(entry{kind: "dropDatabase", namespace: cmd.Database, apply: func(*store) {}})
	return ok(func(b *bson.Builder) { b.String("dropped", cmd.Database) })
}

// rename gives a collection another name. The command names both with their databases.
func (h *host) rename(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	from, _ := field(cmd.Body, "renameCollection").Str()
	to, _ := field(cmd.Body, "to").Str()
	replaces, _ := field(cmd.Body, "dropTarget").Bool()
	_, exists := s.collections[from]
	_, taken := s.collections[to]
	switch {
	case cmd.Database != "admin":
		return reply{}, failure.Unauthorized.Errorf(
			"renameCollection may only be run against the admin database.")
	case !exists:
		return reply{}, failure.NamespaceNotFound.Errorf(
			"Source collection %s does not exist", from)
	case taken && !replaces:
		return reply{}, failure.NamespaceExists.Errorf("target namespace exists")
	}
	s.doLocked(entry{kind: "rename", namespace: from, target: to, apply: func(s *store) {
		s.collections[to] = s.collections[from]
		delete(s.collections, from)
	}})
	return ok(nil)
}

// existingLocked returns the collection that a command names.
func (s *store) existingLocked(cmd *request) (*collection, error) {
	c, exists := s.collections[namespace(cmd)]
	if !exists {
		return nil, failure.NamespaceNotFound.Errorf("ns does not exist: %s", namespace(cmd))
	}
	return c, nil
}

// collModOptions are the options of a collection that collMod changes.
var collModOptions = []string{
	"changeStreamPreAndPostImages", "validator", "validationLevel", "validationAction",
}

func (h *host) collMod(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.existingLocked(cmd)
	if err != nil {
		return reply{}, err
	}
	if err := checkValidator(cmd.Body); err != nil {
		return reply{}, err
	}
	c = new(*c)
	for _, option := range collModOptions {
		if v := field(cmd.Body, option); !v.IsZero() {
			c.options = bson.With(c.options, option, v)
		}
	}
	changes := document(cmd.Body, "index")
	if changes == nil {
		s.setLocked("modify", namespace(cmd), c)
		return ok(nil)
	}
	i := slices.IndexFunc(c.indexes, func(index bson.Raw) bool {
		return field(index, "key").Equal(field(changes, "keyPattern"))
	})
	if i < 0 {
		return reply{}, failure.IndexNotFound.Errorf("cannot find the index")
	}
	if unique, _ := field(changes, "unique").Bool(); unique {
		if err := c.violations(c.indexes[i]); err != nil {
			return reply{}, err
		}
	}
	c.indexes = slices.Clone(c.indexes)
	for key, v := range changes.All() {
		switch key {
		case "keyPattern":
		case "unique", "prepareUnique":
			c.indexes[i] = bson.With(c.indexes[i], key, v)
		default:
			return reply{}, failure.UnknownField.Errorf(
				"BSON field 'collMod.index.%s' is an unknown field",
				key)
		}
	}
	s.setLocked("modify", namespace(cmd), c)
	return ok(nil)
}

// violations returns the error about documents that a unique index would not allow.
func (c *collection) violations(index bson.Raw) error {
	b := bson.NewBuilder(nil).OpenArray("violations")
	found := false
	for i, doc := range c.docs {
		same := []bson.Value{field(doc, "_id")}
		first := true
		for j, other := range c.docs {
			if i == j || !sameKeys(document(index, "key"), doc, other) {
				continue
			}
			first = first && i < j
			same = append(same, field(other, "_id"))
		}
		if len(same) == 1 || !first {
			continue
		}
		found = true
		b.OpenDocument("").OpenArray("ids")
		for _, id := range same {
			b.Value("", id)
		}
		b.Close().Close()
	}
	if !found {
		return nil
	}
	return &failure.Error{
		Code: failure.CannotConvertIndexToUnique, Message: "Cannot convert the index to unique",
		Details: b.Close().Finish(),
	}
}

// sameKeys reports whether two documents are one to an index.
func sameKeys(keys, a, b bson.Raw) bool {
	for key := range keys.All() {
		path := strings.Split(key, ".")
		if !(scope{}).equal(field(a, path...), field(b, path...)) {
			return false
		}
	}
	return true
}

func (h *host) createIndexes(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	_, missing := s.existingLocked(cmd)
	c := new(*s.lookLocked(namespace(cmd)))
	before := len(c.indexes) + 1
	for _, index := range cmd.Documents("indexes") {
		if field(index, "name").IsZero() || document(index, "key").IsEmpty() {
			return reply{}, failure.BadValue.Errorf("an index needs a name and a key")
		}
		for key := range index.All() {
			if !slices.Contains([]string{
				"key", "name", "unique", "expireAfterSeconds",
				"collation",
			}, key) {
				return reply{}, failure.BadValue.Errorf("an index has no option %s here", key)
			}
		}
		there, err := c.hasIndex(index)
		if err != nil {
			return reply{}, err
		}
		if !there {
			c.indexes = append(slices.Clone(c.indexes), bson.With(index, "v", bson.Int32Value(2)))
		}
	}
	after := len(c.indexes) + 1
	if after > before || missing != nil {
		s.setLocked("createIndexes", namespace(cmd), c)
	}
	return ok(func(b *bson.Builder) {
		b.Int32("numIndexesBefore", int32(before)).Int32("numIndexesAfter", int32(after))
		if missing != nil {
			b.Bool("createdCollectionAutomatically", true)
		}
		if after == before {
			b.String("note", "all indexes already exist")
		}
	})
}

// hasIndex reports whether there is an index with that name and key. An index with the same name
// and another key is an error.
func (c *collection) hasIndex(index bson.Raw) (bool, error) {
	for _, other := range c.allIndexes() {
		if !field(index, "name").Equal(field(other, "name")) {
			continue
		}
		if bytes.Equal(document(index, "key"), document(other, "key")) {
			return true, nil
		}
		return false, failure.IndexKeySpecsConflict.Errorf(
			"An existing index has the same name as the requested index, and another key")
	}
	return false, nil
}

func (h *host) dropIndexes(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.existingLocked(cmd)
	if err != nil {
		return reply{}, err
	}
	c = new(*c)
	was := func(b *bson.Builder) { b.Int32("nIndexesWas", int32(len(c.allIndexes()))) }
	dropped, err := ok(was)
	if err != nil {
		return reply{}, err
	}
	name := field(cmd.Body, "index")
	if all, _ := name.Str(); all == "*" {
		c.indexes = nil
		s.setLocked("dropIndexes", namespace(cmd), c)
		return dropped, nil
	}
	kept := slices.DeleteFunc(slices.Clone(c.indexes), func(index bson.Raw) bool {
		return name.Equal(field(index, "name"))
	})
	if len(kept) == len(c.indexes) {
		return reply{}, failure.IndexNotFound.Errorf("index not found")
	}
	c.indexes = kept
	s.setLocked("dropIndexes", namespace(cmd), c)
	return dropped, nil
}

func (h *host) listIndexes(cmd *request) (reply, error) {
	s := cmd.store
	s.mu.Lock()
	c, err := s.existingLocked(cmd)
	var list []bson.Raw
	if err == nil {
		list = c.allIndexes()
	}
	s.mu.Unlock()
	if err != nil {
		return reply{}, err
	}
	return h.first(cmd, &cursor{namespace: namespace(cmd), rest: list},
		field(cmd.Body, "cursor", "batchSize"), false)
}

// allIndexes returns the indexes with that of _id, unless the collection is clustered by it.
func (c *collection) allIndexes() []bson.Raw {
	if c.options.Has("clusteredIndex") {
		return slices.Clone(c.indexes)
	}
	return append([]bson.Raw{idIndex}, c.indexes...)
}

func (h *host) listCollections(cmd *request) (reply, error) {
	namesOnly, _ := field(cmd.Body, "nameOnly").Bool()
	s := cmd.store
	s.mu.Lock()
	var list []bson.Raw
	for _, ns := range slices.Sorted(maps.Keys(s.collections)) {
		name, here := strings.CutPrefix(ns, cmd.Database+".")
		if !here {
			continue
		}
		c := s.collections[ns]
		b := bson.NewBuilder(nil).String("name", name).String("type", c.kind())
		if !namesOnly {
			b.Document("options", c.options).OpenDocument("info").Bool("readOnly",
				c.kind() == "view")
			if c.kind() != "view" {
				b.Value("uuid", c.uuid)
			}
			b.Close()
		}
		list = append(list, b.Finish())
	}
	s.mu.Unlock()
	list, err := scope{}.filtered(list, document(cmd.Body, "filter"))
	if err != nil {
		return reply{}, err
	}
	c := &cursor{namespace: cmd.Database + ".$cmd.listCollections", rest: list}
	return h.first(cmd, c, field(cmd.Body, "cursor", "batchSize"), false)
}

func (c *collection) kind() string {
	switch {
	case c.options.Has("viewOn"):
		return "view"
	case c.options.Has("timeseries"):
		return "timeseries"
	}
	return "collection"
}

// checkMetadata finds nothing inconsistent. Only a mongos knows the command.
func (h *host) checkMetadata(cmd *request) (reply, error) {
	if !h.deployment.isRouted() {
		return reply{}, failure.CommandNotFound.Errorf("no such command: '%s'", cmd.Name)
	}
	return h.first(cmd, &cursor{namespace: cmd.Database + ".$cmd.aggregate"}, bson.Value{}, false)
}

// searchIndexes refuses what only Atlas has.
func (h *host) searchIndexes(*request) (reply, error) { return reply{}, errSearchIndexes }

var errSearchIndexes = failure.SearchNotEnabled.Errorf(
	"Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage " +
		"requires additional configuration.")

// Indexes returns the names of the indexes of a collection.
func (d *Deployment) Indexes(namespace string) []string {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	c, exists := d.store.collections[namespace]
	if !exists {
		return nil
	}
	var names []string
	for _, index := range c.allIndexes() {
		name, _ := field(index, "name").Str()
		names = append(names, name)
	}
	return names
}
