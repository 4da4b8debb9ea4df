package main

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// The methods of a document have no annotation, since its JSON is the whole body and the _id in
// the path is not text.
const resourcePath = "/v1/databases/{database}/collections/{collection}/documents/{id}"

// resourceMethods are the methods of a document, by their HTTP method.
var resourceMethods = map[string]protoreflect.FullName{
	"get":    "mooring.v1.DocumentResourceService.GetDocument",
	"put":    "mooring.v1.DocumentResourceService.PutDocument",
	"patch":  "mooring.v1.DocumentResourceService.PatchDocument",
	"delete": "mooring.v1.DocumentResourceService.DeleteDocument",
}

// resourceParams are what they take in the query, as far as their requests have the field.
var resourceParams = []string{
	"filter", "projection", "let", "array_filters", "bypass_document_validation", "options",
	"max_time_ms", "comment", "read_preference", "read_concern", "write_concern",
}

// resourceQuery returns the query parameters of a method of a document.
func (s *schemas) resourceQuery(m protoreflect.MethodDescriptor) []object {
	idType := query("idType", "Says that the id in the path is text, not Extended JSON.",
		object{"type": "string", "enum": []string{"string"}})
	return append([]object{idType}, s.queryOf(m.Input(), resourceParams)...)
}

// resourceBody returns the body of a method of a document, or nil.
func (s *schemas) resourceBody(m protoreflect.MethodDescriptor) object {
	for _, name := range []protoreflect.Name{"replacement", "update"} {
		if fd := m.Input().Fields().ByName(name); fd != nil {
			return object{"required": true, "content": object{
				"application/json": object{"schema": s.field(fd)},
			}}
		}
	}
	return nil
}

// resourceSuccess returns the responses of a method of a document that succeeds.
func resourceSuccess(s *schemas, verb string) object {
	schema := s.ref(s.message("mooring.v1.Document"))
	content := object{
		"application/json": object{"schema": schema}, "application/ejson": object{"schema": schema},
		"application/bson": object{"schema": binary("The document.")},
	}
	names := []string{"Mooring-Request-Id", "Mooring-Session"}
	if verb != "get" {
		names = append(names, "Mooring-Write-Concern-Error")
	}
	empty := func(description string, names ...string) object {
		return object{"description": description, "headers": headers(names...)}
	}
	if verb == "delete" {
		return object{"204": empty("The document is deleted.", names...)}
	}
	names = append(names, "ETag")
	if verb == "get" {
		return object{
			"200": object{
				"description": "The document.", "headers": headers(names...), "content": content,
			},
			"304": empty("The client has the document: If-None-Match has its etag.", names...),
		}
	}
	names = append(names, "Preference-Applied")
	all := object{
		"200": object{
			"description": "The document as it is now.", "headers": headers(names...),
			"content": content,
		},
		"204": empty("With `Prefer: return=minimal`: the document is changed.", names...),
	}
	if verb == "put" {
		all["201"] = object{
			"description": "The document is created.", "content": content,
			"headers": headers(append(names, "Location")...),
		}
	}
	return all
}

// resourceHeaders returns the names of the header parameters of a method of a document.
func resourceHeaders(verb string) []string {
	names := []string{"ifMatch"}
	if verb == "get" || verb == "put" {
		names = append(names, "ifNoneMatch")
	}
	if verb == "put" || verb == "patch" {
		names = append(names, "prefer")
	}
	return names
}

// isResource reports whether the operation is a method of a document.
func (op *operation) isResource() bool {
	return strings.HasSuffix(string(op.method.Parent().Name()), "ResourceService")
}
