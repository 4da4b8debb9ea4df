package config

import (
	"encoding/json"
	"io"
	"maps"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/connstring"
)

// schema holds a JSON Schema.
type schema = map[string]any

// Schema returns the JSON Schema of the configuration file. A property that is secret is writeOnly.
func Schema() map[string]any {
	root := group()
	for _, row := range options {
		for _, o := range row.withFile() {
			if row.NoFile {
				continue
			}
			parent, name := root, o.Name
			for head, rest, ok := strings.Cut(name, "."); ok; head, rest, ok = strings.Cut(name,
				".") {
				all := parent["properties"].(schema) //nolint:forcetypeassert // see group
				if all[head] == nil {
					all[head] = group()
				}
				parent, name = all[head].(schema), rest //nolint:forcetypeassert // see group
			}
			parent["properties"].(schema)[name] = o.schema() //nolint:forcetypeassert // see group
		}
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Configuration of Mooring"
	return root
}

// WriteSchema writes the JSON Schema of the configuration file.
func WriteSchema(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(Schema())
}

// group returns the schema of an object without properties.
func group() schema {
	return schema{"type": "object", "additionalProperties": false, "properties": schema{}}
}

func (o option) schema() schema {
	if o.Name == mongoOptions {
		return mongoSchema(o.Doc)
	}
	s := kindSchema(o.Kind)
	s["description"] = o.Doc
	if o.Secret {
		s["writeOnly"] = true
	}
	return s
}

// mongoSchema returns the schema of the options of a connection string.
func mongoSchema(doc string) schema {
	s := group()
	s["description"] = doc
	for _, o := range connstring.Options() {
		value := schema{"type": []string{"string", "number", "boolean", "array"}}
		if o.Secret() {
			value["writeOnly"] = true
		}
		s["properties"].(schema)[o.Name] = value //nolint:forcetypeassert // see group
	}
	return s
}

// kinds maps words of the column Kind to the schemas of their values.
var kinds = map[string]schema{
	"bool":     {"type": "boolean"},
	"number":   {"type": "integer", "minimum": 0},
	"duration": {"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`},
	"size": {
		"type": []string{"integer", "string"}, "minimum": 0, "pattern": `^[0-9]+ *(KiB|MiB|GiB)?$`,
	},
	"percent":    {"type": "string", "pattern": `^[0-9]+%$`},
	"percentage": {"type": "string", "pattern": `^[0-9]*\.?[0-9]+%$`},
	"level":      {"enum": []string{"debug", "info", "warn", "error"}},
}

// kindSchema returns the schema of values of that kind. Alternatives are separated by commas and
// by or; those that are not in kinds are words, unless they take any text. A word of digits is a
// number in YAML.
func kindSchema(kind string) schema {
	words := strings.Split(strings.ReplaceAll(kind, " or ", ", "), ", ")
	if s, ok := kinds[kind]; ok {
		return maps.Clone(s)
	}
	switch words[0] {
	case "path", "host", "host:port", "URL":
		return schema{"type": "string"}
	}
	if len(words) == 1 {
		// A text, or a list of texts.
		return schema{
			"type": []string{"string", "number", "array"}, "items": schema{"type": "string"},
		}
	}
	var alternatives []schema
	var literals []any
	for _, word := range words {
		if s, ok := kinds[word]; ok {
			alternatives = append(alternatives, s)
		} else {
			literals = append(literals, word)
			if n, err := strconv.Atoi(word); err == nil {
				literals = append(literals, n)
			}
		}
	}
	if alternatives == nil {
		return schema{"enum": literals}
	}
	return schema{"anyOf": append(alternatives, schema{"enum": literals})}
}
