package audit

import (
	"bytes"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// writers are the names of the stages that write.
var writers = [...]string{"$out", "$merge"}

// maxText is the length of the longest document in JSON that is read for the log.
const maxText = 1 << 20

// unknown stands for a namespace that cannot be read.
const unknown = "?"

// pipeline adds what the stages of a pipeline write to, wherever they stand in it.
func (t *targets) pipeline(database string, stages []*mooringv1.Document) {
	for _, stage := range stages {
		if raw, ok := mayWrite(stage); raw != nil {
			t.stages(database, raw, 0)
		} else if ok {
			t.writes = true
			t.add(unknown, unknown)
		}
	}
}

// mayWrite returns a document as BSON if the name of a stage that writes can be in it. ok without a
// document is one that cannot be read.
func mayWrite(d *mooringv1.Document) (raw bson.Raw, ok bool) {
	if raw := d.GetBson(); raw != nil {
		if !slices.ContainsFunc(writers[:], func(name string) bool {
			return bytes.Contains(raw, []byte(name))
		}) {
			return nil, false
		}
		return raw, true
	}
	text := d.GetJson()
	if !slices.ContainsFunc(writers[:], func(name string) bool {
		return strings.Contains(text, name)
	}) && !strings.Contains(text, `\u`) { // an escape can be a letter of the name
		return nil, false
	}
	return parse(text), true
}

// parse returns a document in JSON as BSON; nil: it is too long, or wrong.
func parse(text string) bson.Raw {
	if len(text) > maxText {
		return nil
	}
	raw, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		return nil
	}
	return raw
}

// maxDepth is the depth at which the search for stages ends. Servers take 200.
const maxDepth = 256

// stages adds what each stage that writes names, at any depth.
func (t *targets) stages(database string, in bson.Raw, depth int) {
	if depth > maxDepth {
		return
	}
	for key, value := range in.All() {
		if slices.Contains(writers[:], key) {
			t.writes = true
			t.add(outputOf(database, value), key)
		}
		if d, ok := value.Document(); ok {
			t.stages(database, d, depth+1)
		} else if a, ok := value.Array(); ok {
			t.stages(database, bson.Raw(a), depth+1)
		}
	}
}

// outputOf returns the namespace that a stage, or a mapReduce, writes to: a text is a collection; a
// document has the database and the collection, also within "into".
func outputOf(database string, v bson.Value) string {
	if name, ok := v.Str(); ok {
		return database + "." + name
	}
	d, ok := v.Document()
	if !ok || isAmbiguous(d) {
		return unknown
	}
	if into, ok := d.Lookup("into"); ok {
		if name, ok := into.Str(); ok {
			return database + "." + name
		}
		if d, _ = into.Document(); isAmbiguous(d) {
			return unknown
		}
	}
	if db := textAt(d, "db"); db != "" {
		database = db
	}
	for _, key := range outputs {
		if name := textAt(d, key); name != "" {
			return database + "." + name
		}
	}
	return unknown
}

// isAmbiguous reports whether a document has more than one of the keys that say where a stage
// writes to: servers differ in which of them counts.
func isAmbiguous(d bson.Raw) bool {
	var names, databases int
	for key := range d.All() {
		switch {
		case key == "db":
			databases++
		case key == "into" || slices.Contains(outputs[:], key):
			names++
		}
	}
	return names > 1 || databases > 1
}

// outputs are the keys that name a collection in what a stage or a mapReduce writes to.
var outputs = [...]string{"coll", "replace", "merge", "reduce", "normal"}

// isInline reports whether a mapReduce writes into its reply only.
func isInline(out bson.Value) bool {
	d, ok := out.Document()
	_, inline := d.Lookup("inline")
	return ok && inline && d.Len() == 1
}

// textAt returns the string with that key; "": there is none.
func textAt(d bson.Raw, key string) string {
	v, _ := d.Lookup(key)
	text, _ := v.Str()
	return text
}
