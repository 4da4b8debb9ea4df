package unified

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// File holds one test file.
type File struct {
	Path           string
	Requirements   []bson.Raw // runOnRequirements
	CreateEntities []bson.Raw
	InitialData    []bson.Raw
	Tests          []Test
}

// Test holds one case of a file.
type Test struct {
	Description       string
	SkipReason        string
	Requirements      []bson.Raw // runOnRequirements
	Operations        []operation
	ExpectEvents      []bson.Raw
	ExpectLogMessages []bson.Raw
	ExpectTracing     []bson.Raw // expectTracingMessages
	Outcome           []bson.Raw

	// Unevaluated is a member of the test that this runner does not evaluate, or "".
	Unevaluated string
}

// members are the members of a test that this runner evaluates.
var members = []string{
	"description", "runOnRequirements", "skipReason", "operations", "expectEvents",
	"expectLogMessages", "expectTracingMessages", "outcome",
}

// operation describes one step of a test.
type operation struct {
	name, object string
	arguments    bson.Raw
	expectError  bson.Raw // nil: it must succeed
	expectResult bson.Value
	save         string // saveResultAsEntity
	ignore       bool   // ignoreResultAndError
}

// Schemas checks files against the schema of the version of the format that they name.
type Schemas struct {
	dir      string
	compiled map[string]*jsonschema.Schema // by path; made when they are needed
}

// NewSchemas returns the schemas in a folder.
func NewSchemas(dir string) *Schemas {
	return &Schemas{dir: dir, compiled: map[string]*jsonschema.Schema{}}
}

// Load reads a test file.
func (s *Schemas) Load(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return s.Parse(path, text)
}

// Parse reads a test file's text; path is what it is called.
func (s *Schemas) Parse(path string, text []byte) (*File, error) {
	if err := s.check(text); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	doc, err := extjson.Parse(nil, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return newFile(path, doc), nil
}

func (s *Schemas) check(text []byte) error {
	var head struct{ SchemaVersion string }
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	version := strings.Split(head.SchemaVersion, ".")
	if len(version) < 2 {
		return fmt.Errorf("schemaVersion %q is not a version", head.SchemaVersion)
	}
	schema, err := s.schema(filepath.Join(s.dir, "schema-"+version[0]+"."+version[1]+".json"))
	if err != nil {
		return fmt.Errorf("schemaVersion %s is not supported: %w", head.SchemaVersion, err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func (s *Schemas) schema(path string) (*jsonschema.Schema, error) {
	if s.compiled[path] == nil {
		schema, err := jsonschema.NewCompiler().Compile(path)
		if err != nil {
			return nil, err
		}
		s.compiled[path] = schema
	}
	return s.compiled[path], nil
}

// newFile takes apart what the schema has checked.
func newFile(path string, doc bson.Raw) *File {
	f := &File{
		Path:           path,
		Requirements:   documents(doc, "runOnRequirements"),
		CreateEntities: documents(doc, "createEntities"),
		InitialData:    documents(doc, "initialData"),
	}
	for _, t := range documents(doc, "tests") {
		test := Test{
			Description: text(t, "description"), SkipReason: text(t, "skipReason"),
			Requirements:      documents(t, "runOnRequirements"),
			Operations:        operations(documents(t, "operations")),
			ExpectEvents:      documents(t, "expectEvents"),
			ExpectLogMessages: documents(t, "expectLogMessages"),
			ExpectTracing:     documents(t, "expectTracingMessages"),
			Outcome:           documents(t, "outcome"),
		}
		for key := range t.All() {
			if !slices.Contains(members, key) {
				test.Unevaluated = key
			}
		}
		f.Tests = append(f.Tests, test)
	}
	return f
}

func operations(docs []bson.Raw) []operation {
	var all []operation
	for _, doc := range docs {
		all = append(all, newOperation(doc))
	}
	return all
}

func newOperation(doc bson.Raw) operation {
	ignore, _ := lookup(doc, "ignoreResultAndError").Bool()
	return operation{
		name: text(doc, "name"), object: text(doc, "object"), arguments: document(doc, "arguments"),
		expectError: document(doc, "expectError"), expectResult: lookup(doc, "expectResult"),
		save: text(doc, "saveResultAsEntity"), ignore: ignore,
	}
}

func lookup(doc bson.Raw, path ...string) bson.Value {
	v, _ := doc.Lookup(path...)
	return v
}

func text(doc bson.Raw, path ...string) string {
	s, _ := lookup(doc, path...).Str()
	return s
}

// document returns the document at a path, nil if there is none.
func document(doc bson.Raw, path ...string) bson.Raw {
	d, _ := lookup(doc, path...).Document()
	return d
}

func documents(doc bson.Raw, path ...string) []bson.Raw {
	array, _ := lookup(doc, path...).Array()
	var all []bson.Raw
	for d := range array.Documents() {
		all = append(all, d)
	}
	return all
}

func texts(doc bson.Raw, path ...string) []string {
	array, _ := lookup(doc, path...).Array()
	var all []string
	for _, v := range array.All() {
		s, _ := v.Str()
		all = append(all, s)
	}
	return all
}
