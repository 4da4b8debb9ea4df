// Command openapi completes the OpenAPI document that protoc-gen-openapiv3 makes, because no
// generator can say what REST makes of the messages: documents and values inline, unions as bare
// values, streams as lines, errors in one shape.
//
//	openapi IMAGE <generated.json >openapi.json
//
// IMAGE is what `buf build` writes. Paths, tags and texts are taken from the generated document;
// schemas are made from the image.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
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
	if len(args) != 1 {
		return fmt.Errorf("usage: openapi IMAGE <generated.json >openapi.json")
	}
	files, err := readImage(args[0])
	if err != nil {
		return err
	}
	var doc document
	if err := json.NewDecoder(in).Decode(&doc); err != nil {
		return fmt.Errorf("generated document: %w", err)
	}
	s := schemas{files: files, made: object{}}
	if err := doc.complete(&s); err != nil {
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
	OpenAPI    string                           `json:"openapi"`
	Info       object                           `json:"info"`
	Servers    []object                         `json:"servers"`
	Tags       []object                         `json:"tags"`
	Paths      map[string]map[string]*operation `json:"paths"`
	Components object                           `json:"components"`
	Security   []object                         `json:"security"`
}

// operation represents a method of a path.
type operation struct {
	Tags        []string `json:"tags"`
	Summary     string   `json:"summary,omitempty"`
	Description string   `json:"description,omitempty"`
	OperationID string   `json:"operationId"`
	Parameters  []object `json:"parameters,omitempty"`
	RequestBody object   `json:"requestBody,omitempty"`
	Responses   object   `json:"responses"`
}

func (d *document) complete(s *schemas) error {
	d.Info = object{
		"title":   "Mooring",
		"version": "v1",
		"description": "A gateway for MongoDB. Documents and values are Extended JSON in their " +
			"places.",
		"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
	}
	d.Servers = []object{{"url": "/"}}
	d.Security = []object{{}}
	d.Paths[importPath] = map[string]*operation{"post": importOperation(s)}
	d.Paths[ticketPath] = map[string]*operation{"get": ticketOperation(s)}
	for path, methods := range d.Paths {
		if path == importPath || path == ticketPath {
			continue
		}
		for verb, op := range methods {
			if err := op.complete(s, verb); err != nil {
				return fmt.Errorf("%s %s: %w", verb, path, err)
			}
		}
	}
	failure := s.ref(s.message("mooring.v1.ErrorResponse"))
	d.Components = object{
		"schemas": s.made,
		"responses": object{
			"Error": object{
				"description": "What failed.", "content": object{
					"application/json": object{"schema": failure},
				},
			},
		},
		"parameters": object{
			"timeout": query("timeout", "The deadline of the call, as a duration: `5s`, `250ms`.",
				object{"type": "string"}),
		},
	}
	return nil
}

// tildeNote goes with every name in a path.
const tildeNote = " A name that begins with ~ is the base64url of a name."

// complete makes one operation say what REST does. Its id is Service_Method or Service_Method_1.
func (op *operation) complete(s *schemas, verb string) error {
	op.Summary = strings.ReplaceAll(op.Summary, "\n", " ") // readers show it in one line
	names := strings.Split(op.OperationID, "_")
	if len(names) < 2 {
		return fmt.Errorf("operation id %q", op.OperationID)
	}
	found, err := s.files.FindDescriptorByName(protoreflect.FullName("mooring.v1." + names[0] +
		"." + names[1]))
	if err != nil {
		return err
	}
	method, _ := found.(protoreflect.MethodDescriptor)
	var params []object
	for _, p := range op.Parameters {
		if p["in"] == "path" {
			p["description"] = fmt.Sprint(p["description"]) + tildeNote
			params = append(params, p)
		}
	}
	if verb == "get" {
		params = append(params, s.queryParams(method)...)
	} else {
		op.RequestBody = object{
			"required": true, "content": object{
				"application/json": object{"schema": s.object(method.Input())},
			},
		}
	}
	op.Parameters = append(params, object{"$ref": "#/components/parameters/timeout"})
	failure := object{"$ref": "#/components/responses/Error"}
	op.Responses = object{"200": s.success(method), "4XX": failure, "default": failure}
	return nil
}

// success returns the response of a method: an object, a page, or a stream.
func (s *schemas) success(method protoreflect.MethodDescriptor) object {
	out := method.Output()
	if method.IsStreamingServer() {
		name, item := "document", s.ref(s.message("mooring.v1.Document"))
		if out.Fields().ByName("documents") == nil {
			fd := out.Fields().Get(0)
			name, item = fd.JSONName(), s.field(fd)
		}
		failure := s.ref(s.message("mooring.v1.ErrorResponse"))
		line := func(name string, value object) object {
			return object{
				"type": "object", "required": []string{name},
				"properties": object{name: value}, "additionalProperties": false,
			}
		}
		end := object{"type": "object", "description": "The stream went well."}
		kinds := []any{line(name, item), line("end", end), failure}
		if token := out.Fields().ByName("resume_token"); token != nil {
			progress := line("resumeToken", s.field(token))
			kinds = append(kinds, line("progress", progress))
		}
		return object{
			"description": "A stream. The last line is an end or an error; with `Accept: " +
				"application/x-ndjson;bare=true` there are only documents.",
			"content": object{
				"application/x-ndjson": object{
					"schema": object{"oneOf": kinds},
				},
				"text/event-stream": object{"schema": object{"type": "string"}},
			},
		}
	}
	schema := s.ref(out)
	content := object{
		"application/json": object{"schema": schema}, "application/ejson": object{
			"schema": schema,
		},
	}
	if out.Fields().ByName("documents") != nil && out.Fields().ByName("cursor") != nil {
		content["application/bson"] = object{"schema": object{
			"description": "The documents, one after the other; the cursor is in the header " +
				"Mooring-Cursor.",
		}}
	}
	return object{"description": "What the call returns.", "content": content}
}

// getParams are what a GET takes in its query; all that are not text are JSON.
var getParams = []string{
	"filter", "projection", "sort", "hint", "collation", "limit", "skip", "batch_size",
	"max_time_ms", "comment", "read_preference", "read_concern",
	"principal", "namespace", "pinned", "cursor", "name", "name_only", "authorized_databases",
	"authorized_collections",
}

// textParams are plain text there, whatever they are in a body.
var textParams = map[string]string{
	"comment": "", "read_preference": " The mode.", "read_concern": " The level.",
	"principal": "", "namespace": "", "cursor": "", "name": "",
}

// watchParams are what a GET of changes takes in its query.
var watchParams = []string{
	"pipeline", "full_document", "full_document_before_change", "resume_after", "start_after",
	"start_at_operation_time", "batch_size", "max_await_time_ms", "collation", "comment",
	"show_expanded_events", "read_preference", "read_concern",
}

func (s *schemas) queryParams(method protoreflect.MethodDescriptor) []object {
	if method.FullName() == watchMethod {
		return s.queryOf(method.Input(), watchParams)
	}
	return s.queryOf(method.Input(), getParams)
}

// queryOf returns the parameters of the request's fields with these names.
func (s *schemas) queryOf(
	request protoreflect.MessageDescriptor, names []string,
) []object {
	var params []object
	for _, name := range names {
		fd := request.Fields().ByName(protoreflect.Name(name))
		if fd == nil {
			continue
		}
		note, isText := textParams[name]
		switch {
		case isText:
			params = append(params, query(fd.JSONName(), comment(fd)+note, object{
				"type": "string",
			}))
		case fd.Kind() == protoreflect.MessageKind:
			p := query(fd.JSONName(), comment(fd), nil)
			delete(p, "schema")
			p["content"] = object{"application/json": object{"schema": s.field(fd)}}
			params = append(params, p)
		default:
			params = append(params, query(fd.JSONName(), comment(fd), s.field(fd)))
		}
	}
	return params
}

func query(name, description string, schema object) object {
	return object{"name": name, "in": "query", "description": description, "schema": schema}
}
