// Command openapi completes the OpenAPI document that protoc-gen-openapiv3 makes, because no
// generator can say what REST makes of the messages: documents and values inline, unions as bare
// values, streams as lines, errors in one shape.
//
//	openapi IMAGE REASONS <generated.json >openapi.json
//
// IMAGE is what `buf build` writes. REASONS is docs/api.md, whose tables list the reasons of
// errors with their statuses. Paths are taken from the generated document; everything else is made
// from the image, the tables, and the examples beside this command.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

// object represents a JSON object.
type object = map[string]any

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: openapi IMAGE REASONS <generated.json >openapi.json")
	}
	files, err := readImage(args[0])
	if err != nil {
		return err
	}
	text, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	statuses, err := readStatuses(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	var doc document
	if err := json.NewDecoder(in).Decode(&doc); err != nil {
		return fmt.Errorf("generated document: %w", err)
	}
	if err := doc.complete(newSchemas(files), statuses); err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	return enc.Encode(doc)
}

func readImage(path string) (*protoregistry.Files, error) {
	image, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(image, &set); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	return protodesc.NewFiles(&set)
}

// document represents an OpenAPI document, as far as this command knows it.
type document struct {
	OpenAPI    string   `json:"openapi"`
	Info       object   `json:"info"`
	Servers    []object `json:"servers"`
	Security   []object `json:"security"`
	Tags       []object `json:"tags"`
	Paths      paths    `json:"paths"`
	Components object   `json:"components"`
}

func (d *document) complete(s *schemas, statuses []status) error {
	d.Info = object{
		"title":   "Mooring",
		"version": "v1",
		"description": "A gateway for MongoDB. Documents and values are Extended JSON in their " +
			"places.",
		"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
	}
	d.Servers = []object{{"url": "/"}}
	d.Security = []object{{}, {"bearer": []string{}}, {"apiKey": []string{}}}
	examples, err := readExamples()
	if err != nil {
		return err
	}
	for path, methods := range d.Paths {
		for verb, op := range methods {
			if err := op.read(s); err != nil {
				return fmt.Errorf("%s %s: %w", verb, path, err)
			}
		}
	}
	d.Paths[importPath] = map[string]*operation{"post": newOperation(s, importMethod)}
	d.Paths[ticketPath] = map[string]*operation{"get": newOperation(s, watchMethod)}
	d.Paths[resourcePath] = map[string]*operation{}
	for verb, method := range resourceMethods {
		d.Paths[resourcePath][verb] = newOperation(s, method)
	}
	if err := d.name(s); err != nil {
		return err
	}
	for path, methods := range d.Paths {
		for verb, op := range methods {
			op.complete(s, verb, path, statuses)
			if err := op.illustrate(examples); err != nil {
				return fmt.Errorf("%s: %w", op.OperationID, err)
			}
		}
	}
	for id := range examples {
		return fmt.Errorf("there is an example of %s, but no such operation", id)
	}
	d.tag(s)
	d.Components = object{
		"schemas":         s.made,
		"responses":       responses(s, statuses),
		"parameters":      sharedParameters,
		"headers":         sharedHeaders,
		"securitySchemes": securitySchemes,
	}
	return nil
}

var securitySchemes = object{
	"bearer": object{
		"type": "http", "scheme": "bearer",
		"description": "An API key, or a JSON Web Token.",
	},
	"apiKey": object{
		"type": "apiKey", "in": "header", "name": "api-key", "description": "An API key.",
	},
}

// name gives each operation a name of its own, and tells the schemas the names, since texts refer
// to operations.
func (d *document) name(s *schemas) error {
	paths := map[string]string{} // by id
	for path, methods := range d.Paths {
		for verb, op := range methods {
			op.OperationID = operationID(op.method, verb, path)
			if other, taken := paths[op.OperationID]; taken {
				return fmt.Errorf("%s is the id of %s and of %s", op.OperationID, other, path)
			}
			paths[op.OperationID] = path
			if op.isMain(verb, path) {
				s.ids[string(op.method.Parent().Name()+"."+op.method.Name())] = op.OperationID
			}
		}
	}
	return nil
}

// tag describes the groups of operations, one for each service, in their order.
func (d *document) tag(s *schemas) {
	d.Tags = nil
	services := map[string]protoreflect.Descriptor{}
	for _, methods := range d.Paths {
		for _, op := range methods {
			services[tagOf(op.method)] = op.method.Parent()
		}
	}
	for name, service := range services {
		text := strings.TrimPrefix(s.text(service), string(service.Name())+" ")
		d.Tags = append(d.Tags, object{"name": name, "description": capital(text)})
	}
	slices.SortFunc(d.Tags, func(a, b object) int {
		return compareTags(fmt.Sprint(a["name"]), fmt.Sprint(b["name"]))
	})
}
