// Package method describes the methods of the API: what a policy decides about, what the audit log
// has, which replica makes a call, whether a client may repeat it, and what a policy checks in the
// fields of its requests. It reads the options in proto/mooring/v1/annotations.proto, once, when
// the program starts.
//
// It does no I/O and decides nothing.
package method

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Method describes one method. It never changes.
type Method struct {
	// Name is the full name, such as /mooring.v1.DocumentService/Find.
	Name string
	// Action is the name in a policy.
	Action string
	Group  mooringv1.Method_Group
	Scope  mooringv1.Method_Scope
	Audit  mooringv1.Method_Audit
	Route  mooringv1.Method_Route
	Repeat mooringv1.Method_Repeat
	// Descriptor has the types of the request and the response.
	Descriptor protoreflect.MethodDescriptor
}

// Of returns the method with a full name, such as /mooring.v1.DocumentService/Find. It returns nil
// for methods that are not the API's: health, reflection, and those between replicas.
func Of(name string) *Method { return methods.byName[name] }

// OfRequest returns the method that takes a type of requests, or nil.
func OfRequest(request protoreflect.FullName) *Method { return methods.byRequest[request] }

// OfAction returns the method with a name in policies, or nil.
func OfAction(action string) *Method { return methods.byAction[action] }

// All returns all methods of the API, in the order of their names.
func All() []*Method {
	return slices.SortedFunc(maps.Values(methods.byName), func(a, b *Method) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// table holds the methods by what they are looked up by.
type table struct {
	byName, byAction map[string]*Method
	byRequest        map[protoreflect.FullName]*Method
	// checked has the fields in which a policy checks something, of each request and its parts.
	checked map[protoreflect.MessageDescriptor][]Field
}

// methods is the table of the API. Its making panics where options are missing.
var methods = func() table {
	var files []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage(
		mooringv1.File_mooring_v1_annotations_proto.Package(),
		func(f protoreflect.FileDescriptor) bool {
			files = append(files, f)
			return true
		})
	t, err := read(files)
	if err != nil {
		panic("bug: method: " + err.Error())
	}
	return t
}()

// read makes the table of the methods in files. It fails if a method or a field of a request has
// not all options, or if a method shares its request or its action with another.
func read(files []protoreflect.FileDescriptor) (table, error) {
	t := table{
		map[string]*Method{},
		map[string]*Method{},
		map[protoreflect.FullName]*Method{},
		map[protoreflect.MessageDescriptor][]Field{},
	}
	var problems []error
	for _, file := range files {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				if err := t.add(service.Methods().Get(j)); err != nil {
					problems = append(problems, err)
				}
			}
		}
	}
	return t, errors.Join(problems...)
}

func (t *table) add(md protoreflect.MethodDescriptor) error {
	o, _ := proto.GetExtension(md.Options(), mooringv1.E_Method).(*mooringv1.Method)
	m := &Method{
		Name:   "/" + string(md.Parent().FullName()) + "/" + string(md.Name()),
		Action: o.GetAction(), Group: o.GetGroup(), Scope: o.GetScope(),
		Audit: o.GetAudit(), Route: o.GetRoute(), Repeat: o.GetRepeat(),
		Descriptor: md,
	}
	if m.Action == "" {
		m.Action = string(md.Name())
	}
	request := md.Input().FullName()
	switch {
	case m.Group == 0, m.Scope == 0, m.Audit == 0, m.Route == 0, m.Repeat == 0:
		return fmt.Errorf("%s has not all options of mooring.v1.method", m.Name)
	case t.byRequest[request] != nil:
		return fmt.Errorf("%s takes the request of %s", m.Name, t.byRequest[request].Name)
	case t.byAction[m.Action] != nil:
		return fmt.Errorf("%s is the action of %s", m.Name, t.byAction[m.Action].Name)
	}
	t.byName[m.Name], t.byAction[m.Action], t.byRequest[request] = m, m, m
	return t.check(md.Input())
}
